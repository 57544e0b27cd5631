"""The gate on Redis: one hash for each turn, one Lua script and one round trip for each operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from harness_worker.adapters.redis import contracts
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.core.reads import ReadState, SettledRead
from harness_worker.ports import Admission, Admitted, GatePass, ReadAttempt, RunningCall


class RedisGate:
    """Implements ``ports.Gate``. Every method raises ``TransientError`` if Redis does not answer.

    Args:
        client: The Redis that holds the gates; it may lose them.
        lease_ttl_s: A read without a heartbeat for longer counts as lost, in seconds.
    """

    def __init__(self, client: RedisClient, *, lease_ttl_s: float) -> None:
        self._client = client
        self._ttl_ms = int(lease_ttl_s * 1000)

    def raise_fence(self, turn_id: str, fence: int) -> bool:
        """See ``ports.Gate.raise_fence``."""
        return bool(self._client.run(contracts.raise_fence(_key(turn_id), fence)))

    def open(self, turn_id: str, fence: int, passes: Sequence[GatePass]) -> bool:
        """See ``ports.Gate.open``."""
        return bool(self._client.run(contracts.open_gate(_key(turn_id), fence, passes)))

    def close(self, turn_id: str, fence: int, *, is_over: bool = False) -> None:
        """See ``ports.Gate.close``."""
        self._client.run(contracts.close_gate(_key(turn_id), fence, is_over))

    def settle(self, turn_id: str, fence: int, reads: Sequence[ReadAttempt], *, close: bool) -> list[SettledRead]:
        """See ``ports.Gate.settle``."""
        replies = self._client.run(contracts.settle(_key(turn_id), fence, self._ttl_ms, close, reads))
        return [_settled(read.call_id, reply) for read, reply in zip(reads, replies, strict=True)]

    def admit(self, run: RunningCall, cap_ms: int) -> Admitted:
        """See ``ports.Gate.admit``."""
        sent = contracts.admit(_key(run.turn_id), run.call_id, run.attempt, cap_ms, self._ttl_ms, run.runner)
        answer, remaining_ms, ticket = self._client.run(sent)
        return Admitted(answer=Admission(answer), remaining_ms=remaining_ms, ticket=ticket)

    def admits_write(self, run: RunningCall) -> bool:
        """See ``ports.Gate.admits_write``."""
        return bool(self._client.run(contracts.admits_write(_key(run.turn_id), run.call_id, run.attempt)))

    def goes_on(self, run: RunningCall) -> bool:
        """See ``ports.Gate.goes_on``."""
        return bool(self._client.run(contracts.goes_on(_key(run.turn_id), run.call_id, run.attempt, run.runner)))

    def complete(self, run: RunningCall, completion: str) -> bool:
        """See ``ports.Gate.complete``; repeated, it gives ``True`` again for the same completion."""
        sent = contracts.complete(_key(run.turn_id), run.call_id, run.attempt, run.runner, completion)
        return bool(self._client.run(sent))

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """See ``ports.Gate.beat``; one script for each turn, all in one round trip."""
        by_turn: defaultdict[str, list[RunningCall]] = defaultdict(list)
        for run in runs:
            by_turn[run.turn_id].append(run)
        self._client.run_all([contracts.beat(_key(turn_id), mine) for turn_id, mine in by_turn.items()])

    def lose(self, run: RunningCall) -> None:
        """See ``ports.Gate.lose``."""
        self._client.run(contracts.lose(_key(run.turn_id), run.call_id, run.attempt, run.runner))


def _key(turn_id: str) -> str:
    return f"harness:{{{turn_id}}}:gate"  # the braces put all keys of a turn into one cluster slot


def _settled(call_id: str, reply: Sequence[str]) -> SettledRead:
    state, completion, started, finished, runner, left_ms = reply
    return SettledRead(
        call_id=call_id,
        state=ReadState(state) if state else None,
        completion=None if state else completion,
        started_at=float(started) if started else None,
        finished_at=float(finished) if finished else None,
        worker=runner or None,
        lease_s=int(left_ms) / 1000 if left_ms else None,
    )
