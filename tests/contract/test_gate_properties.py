"""Random histories: both gates give equal answers, and a gate's promises hold over every history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_worker.adapters.memory.gate import MemoryGate
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.gate import RedisGate
from harness_worker.core.reads import SettledRead
from harness_worker.ports import Admission, Admitted, Gate, RunningCall
from tests.contract.gate_kit import MINUTE_MS, a_pass, a_run, asked, new_turn_id

TTL_S = 600.0
HOUR_MS = 3_600_000
OVER_MS = -1_000

fences = st.integers(1, 3)
attempts = st.integers(1, 3)
call_ids = st.sampled_from(["0.0", "0.1"])
runners = st.sampled_from(["host/1", "host/2"])
times_ms = st.sampled_from([OVER_MS, MINUTE_MS, MINUTE_MS, MINUTE_MS, 3 * HOUR_MS])
runs = st.builds(a_run, st.just("?"), call_ids, attempts, runners)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on a turn's gate; ``flush`` deletes the gate."""

    name: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict[str, Any])

    def on(self, gate: Gate, turn_id: str) -> Any:  # noqa: ANN401 - whatever the operation replies
        """Perform the step on the gate of ``turn_id``."""
        operation: Callable[..., Any] = getattr(gate, self.name)
        if self.name in ("admit", "admits_write", "complete", "lose", "goes_on"):
            run, *rest = self.arguments
            return operation(replace(run, turn_id=turn_id), *rest)
        if self.name == "beat":
            return operation([replace(run, turn_id=turn_id) for run in self.arguments[0]])
        return operation(turn_id, *self.arguments, **self.keywords)


def step(name: str, *arguments: st.SearchStrategy[Any], **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """Draw a step with random arguments."""
    return st.builds(Step, st.just(name), st.tuples(*arguments), st.fixed_dictionaries(keywords))


def histories(uses: st.SearchStrategy[str]) -> st.SearchStrategy[list[Step]]:
    """Draw random operations on a gate; calls of the same name are distinct if the model's ids for them are."""
    reads = st.lists(st.builds(asked, call_ids, attempts, uses), max_size=3)
    passes = st.lists(st.builds(a_pass, call_ids, attempts, times_ms, st.sampled_from(["", "t"]), uses), max_size=3)
    steps = st.one_of(
        step("raise_fence", fences),
        step("open", fences, passes),
        step("open", fences, passes),
        step("close", fences),
        step("settle", fences, reads, close=st.booleans()),
        step("admit", runs, times_ms),
        step("admit", runs, times_ms),
        step("admits_write", runs),
        step("complete", runs, st.sampled_from(["x", "y"])),
        step("complete", runs, st.sampled_from(["x", "y"])),
        step("beat", st.lists(runs, min_size=1, max_size=2)),
        step("lose", runs),
        step("goes_on", runs),
        step("flush"),
    )
    return st.lists(steps, min_size=5, max_size=40).map(lambda rest: [Step("raise_fence", (1,)), *rest])


def comparable(reply: Any) -> Any:  # noqa: ANN401 - whatever an operation replies
    """The reply without what depends on the clock, on which two gates may differ."""
    match reply:
        case Admitted():
            return replace(reply, remaining_ms=int(reply.remaining_ms > 0))
        case list():
            return [comparable(one) for one in reply]  # pyright: ignore[reportUnknownVariableType]
        case SettledRead():
            timed = {name: getattr(reply, name) and 1.0 for name in ("started_at", "finished_at", "lease_s")}
            return replace(reply, **timed)
        case _:
            return reply


@settings(max_examples=200)
@given(history=histories(st.sampled_from(["toolu_1", "toolu_1", "toolu_2"])))
def test_gates_give_equal_answers(client: RedisClient, history: list[Step]) -> None:
    """The gate in memory cannot be told from the gate on Valkey; and each operation renews the TTL of its key."""
    real: Gate = RedisGate(client, lease_ttl_s=TTL_S)
    fake: Gate = MemoryGate(lease_ttl_s=TTL_S)
    turn_id = new_turn_id()
    key = f"harness:{{{turn_id}}}:gate"
    for one in history:
        if one.name == "flush":
            client.command("DEL", key)
            fake = MemoryGate(lease_ttl_s=TTL_S)
            continue
        client.command("PEXPIRE", key, MINUTE_MS)
        assert comparable(one.on(real, turn_id)) == comparable(one.on(fake, turn_id)), one
        lifetime_ms = client.command("PTTL", key)
        assert lifetime_ms == -2 or lifetime_ms > HOUR_MS - MINUTE_MS
    client.command("DEL", key)


@dataclass(slots=True)
class Promises:
    """Watches a history from outside, and fails if a promise is broken."""

    admitted: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    accepted: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    fence: int = 0
    is_open: bool = False

    def watch(self, one: Step, reply: Any) -> None:  # noqa: ANN401 - whatever the operation replied
        """Check a step and its reply against those before."""
        match one.name:
            case "raise_fence":
                fence: int = one.arguments[0]
                assert reply is (fence >= self.fence)
                self.is_open = self.is_open or fence > self.fence
                self.fence = max(fence, self.fence)
            case "close":
                self.is_open = self.is_open and one.arguments[0] < self.fence
                self.fence = max(one.arguments[0], self.fence) if self.fence else 0
            case "open":
                assert reply is (self.is_open and one.arguments[0] == self.fence), "only who was let in last opens"
            case "settle":
                self._settled(one, reply)
            case "admit":
                self._admitted(one.arguments[0], reply)
            case "complete":
                self._completed(*one.arguments, accepted=reply)
            case "flush":
                self.__init__()
            case _:
                pass

    def _admitted(self, run: RunningCall, reply: Admitted) -> None:
        if reply.answer is Admission.OK:
            assert self.is_open, "nothing starts through a closed gate"
            assert (run.call_id, run.attempt) not in self.admitted, "an attempt is admitted once"
            self.admitted.add((run.call_id, run.attempt))

    def _completed(self, run: RunningCall, completion: str, *, accepted: bool) -> None:
        if accepted:
            known = self.accepted.setdefault((run.call_id, run.attempt), completion)
            assert known == completion, "a completion never changes"
            assert (run.call_id, run.attempt) in self.admitted, "only what was admitted completes"

    def _settled(self, one: Step, reply: list[SettledRead]) -> None:
        for sent, read in zip(one.arguments[1], reply, strict=True):
            if read.state is None:
                accepted = self.accepted[sent.call_id, sent.attempt]
                assert read.completion == accepted, "what is settled is what was accepted"


@pytest.mark.parametrize("kind", ["memory", "valkey"])
@settings(max_examples=150)
@given(history=histories(st.just("toolu_1")))
def test_gate_keeps_its_promises(client: RedisClient, kind: str, history: list[Step]) -> None:
    """An attempt has at most one run, a completion never changes, nothing starts or completes in a closed gate."""
    gate: Gate = MemoryGate(lease_ttl_s=TTL_S) if kind == "memory" else RedisGate(client, lease_ttl_s=TTL_S)
    turn_id, promises = new_turn_id(), Promises()
    for one in history:
        if one.name == "flush":
            turn_id = new_turn_id()
            promises.watch(one, None)
            continue
        was_open, before = promises.is_open, dict(promises.accepted)
        promises.watch(one, one.on(gate, turn_id))
        assert was_open or promises.accepted == before, "nothing new completes through a closed gate"
