"""What the gate's tests share: both gates, watched for keys that never expire, and short ways to use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from uuid_utils.compat import uuid7

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.core.reads import ReadState, SettledRead
from harness_worker.ports import Admission, Gate, GatePass, ReadAttempt, RunningCall
from harness_worker.testing.keys import keys_without_ttl

MINUTE_MS = 60_000
RUNNER = "host/1"
READ = "0.0"
TOOL_USE = "toolu_1"


class _WatchedGate:
    """A gate that checks after every operation that no key lacks a TTL."""

    def __init__(self, gate: Gate, client: RedisClient) -> None:
        self._gate = gate
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._gate, name)

        @wraps(operation)
        def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operation
            reply = operation(*args, **kwargs)
            assert keys_without_ttl(self._client, pattern="harness:{*") == []
            return reply

        return watched


def watched(gate: Gate, client: RedisClient) -> Gate:
    """``gate``, which now fails the test if an operation leaves a key without a TTL."""
    return cast("Gate", _WatchedGate(gate, client))


def new_turn_id() -> str:
    """The id of a turn that no other test uses."""
    return str(uuid7())


def a_pass(
    call_id: str = READ,
    attempt: int = 1,
    remaining_ms: int = MINUTE_MS,
    ticket: str = "{}",
    tool_use_id: str = TOOL_USE,
) -> GatePass:
    """A call about to be dispatched, with a minute left until its deadline."""
    return GatePass(call_id=call_id, tool_use_id=tool_use_id, attempt=attempt, remaining_ms=remaining_ms, ticket=ticket)


def a_run(turn_id: str, call_id: str = READ, attempt: int = 1, runner: str = RUNNER) -> RunningCall:
    """The run of a read in ``runner``."""
    return RunningCall(turn_id=turn_id, call_id=call_id, attempt=attempt, runner=runner)


def opened(gate: Gate, *passes: GatePass, fence: int = 1) -> str:
    """The id of a new turn whose gate is open for ``passes``, by default for one read."""
    turn_id = new_turn_id()
    assert gate.raise_fence(turn_id, fence)
    assert gate.open(turn_id, fence, passes or (a_pass(),))
    return turn_id


def admit(gate: Gate, turn_id: str, call_id: str = READ, attempt: int = 1, runner: str = RUNNER) -> Admission:
    """Ask the gate to admit a read that may run for a minute."""
    return gate.admit(a_run(turn_id, call_id, attempt, runner), MINUTE_MS).answer


def running(gate: Gate, *passes: GatePass) -> str:
    """The id of a new turn whose passes are all admitted for :data:`RUNNER`."""
    turn_id = opened(gate, *passes)
    for one in passes or (a_pass(),):
        assert admit(gate, turn_id, one.call_id, one.attempt) is Admission.OK
    return turn_id


def asked(call_id: str, attempt: int = 1, tool_use_id: str = TOOL_USE) -> ReadAttempt:
    """A read as a coordinator asks about it."""
    return ReadAttempt(call_id=call_id, tool_use_id=tool_use_id, attempt=attempt)


def settle(gate: Gate, turn_id: str, fence: int = 1, attempt: int = 1, *, close: bool = False) -> SettledRead:
    """The gate's settlement of the only read."""
    [read] = gate.settle(turn_id, fence, [asked(READ, attempt)], close=close)
    return read


def beaten(gate: Gate, turn_id: str) -> ReadState | None:
    """The state of the only read after a heartbeat of its process."""
    gate.beat([a_run(turn_id)])
    return state(gate, turn_id)


def state(gate: Gate, turn_id: str, fence: int = 1, attempt: int = 1, *, close: bool = False) -> ReadState | None:
    """The state of the only read; ``None`` if it has completed."""
    return settle(gate, turn_id, fence, attempt, close=close).state
