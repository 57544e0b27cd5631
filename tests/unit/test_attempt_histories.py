"""Any history of attempts leaves exactly one result a call and no late effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness_worker.core.outcomes import content_of
from harness_worker.core.records import CallStatus
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks, PostToolUse
from harness_worker.turn.running.job import Job
from tests.unit.builders import RUNNER
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks, raising

Op: TypeAlias = tuple[str, int]
EFFECTS = {"look": Effect.READ_ONLY, "same_look": Effect.READ_ONLY, "write": Effect.LOCAL_WRITE, "safe_write": None}
MOST_LOOKS = 60

_kinds = (
    *("advance", "run", "run", "meanwhile", "meanwhile", "die", "die_late"),
    *("lose", "beat", "wait", "cancel", "flush"),
)
_ops = st.lists(st.tuples(st.sampled_from(_kinds), st.integers(0, 7)), min_size=3, max_size=25)
_plans = st.lists(st.lists(st.sampled_from(sorted(EFFECTS)), min_size=1, max_size=4), min_size=1, max_size=2)


class Died(BaseException):
    """The process of a call is gone."""


class Told(Hooks):
    """Notes what became of calls, as hooks are told."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, int], list[str]] = {}

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """Note it."""
        self.outcomes.setdefault((event.call_id, event.attempt), []).append(content_of(event.outcome))


class History:
    """A turn, and every message that was ever sent for one of its calls."""

    def __init__(self, plans: list[list[str]]) -> None:
        self.told = Told()
        self.engine = engine = Engine(self.told, **EFFECTS)
        self.jobs: list[Job] = []
        self.entered: Counter[str] = Counter()
        self.meanwhile: list[int] = []
        self.was_flushed = False
        engine.says(*(asks(*plan) for plan in plans), *(answers("done") for _ in range(9)))
        for name in EFFECTS:
            engine.bodies[name] = partial(self._body, name)
        self.look()

    def do(self, op: Op) -> None:
        """One thing that happens."""
        kind, number = op
        simple: dict[str, Callable[[], object]] = {
            "advance": self.look,
            "wait": lambda: self.engine.clock.wait((0.5, 2.5, 7.0, 20.0)[number % 4]),
            "cancel": lambda: number == 7 and self.engine.store.cancel(TURN_ID),
            "flush": self._flush,
            "meanwhile": lambda: self.meanwhile.append(number),
        }
        if kind in simple:
            simple[kind]()
        elif self.jobs:
            self._act(kind, self.jobs[number % len(self.jobs)])

    def look(self) -> None:
        """Look at the turn; what it sends is kept."""
        before = len(self.engine.sent.chords), len(self.engine.sent.chains)
        self.engine.advance()
        fresh = [*self.engine.sent.chords[before[0] :], *self.engine.sent.chains[before[1] :]]
        for call_id in (each for sent in fresh for each in sent):
            self.jobs.append(self.engine.job(call_id, f"{RUNNER}{len(self.jobs)}"))

    def end(self) -> None:
        """Let the world be kind, until the turn is over; then let everything arrive once more."""
        for _ in range(MOST_LOOKS):
            if self.engine.turn.status.is_final:
                break
            for job in tuple(self.jobs):
                self._act("run", job)
            self.engine.clock.wait(2.0)
            self.look()
        self._check_late()

    def _check_late(self) -> None:
        before = (self.engine.turn, self.engine.calls, len(self.engine.store.events), repr(self.told.outcomes))
        for job in self.jobs:
            self._act("run", job)
        self.look()
        assert (self.engine.turn, self.engine.calls, len(self.engine.store.events), repr(self.told.outcomes)) == before

    def _act(self, kind: str, job: Job) -> None:
        if kind == "lose":
            self.engine.gate.lose(self._run_of(job))
            self.engine.store.lose_call(self._run_of(job))
        elif kind == "beat":
            self.engine.gate.beat([self._run_of(job)])
            self.engine.store.beat_calls([self._run_of(job)], 6.0)
        else:
            self._serve(job, dies=kind != "run", late=kind == "die_late")

    def _serve(self, job: Job, *, dies: bool, late: bool) -> None:
        """A message reaches a process, which may die once it was let in, or before it hands in its result."""
        point = self.engine.seen_gate if job.is_read else self.engine.seen_store
        name = "admit" if job.is_read else "transact"
        if dies and not late:
            point.after[name] = [raising(Died())]
        if dies and late:
            last = "complete" if job.is_read else name
            point.before[last] = [*([] if job.is_read else [lambda: None]), raising(Died())]
        try:
            self.engine.runner.run(job)
        except Died:
            pass
        finally:
            for waiting in (point.before, point.after):
                waiting.clear()

    def _body(self, name: str) -> str:
        """While it runs, time may pass, somebody may look, cancel or flush, another attempt run or die."""
        self.entered[name] += 1
        said = f"{name} {self.entered[name]}"
        if self.meanwhile:
            self._pass(self.meanwhile.pop())
        return said

    def _pass(self, number: int) -> None:
        self.engine.clock.wait((0.5, 7.0, 9.0, 20.0)[number % 4])
        if number == 5:
            self.engine.store.cancel(TURN_ID)
        if number == 6:
            self._flush()
        self.look()
        if number in (1, 2):
            self._act(("run", "die")[number - 1], self.jobs[-1])

    def _flush(self) -> None:
        self.was_flushed = True
        self.engine.flush()

    def _run_of(self, job: Job) -> Any:  # noqa: ANN401 - the engine kit's
        return self.engine.alive(job.call_id)


def check(plans: list[list[str]], ops: list[Op]) -> None:
    """Play a history, end the turn, and look at what is left of it."""
    history = History(plans)
    for op in ops:
        history.do(op)
    history.end()
    engine = history.engine
    assert engine.turn.status.is_final
    assert all(call.status is CallStatus.ENDED and call.outcome is not None for call in engine.calls)
    said = [block for m in engine.store.history(TURN_ID) if m.role == "user" and m.position for block in m.content]
    assert [block["content"] for block in said] == engine.contents
    completed = [event.data["call_id"] for event in engine.store.events if event.type == "tool.completed"]
    assert sorted(completed) == sorted(call.call_id for call in engine.calls)
    final = {
        call.call_id: (call.attempt, content_of(call.outcome)) for call in engine.calls if call.outcome is not None
    }
    for (call_id, attempt), outcomes in history.told.outcomes.items():
        assert len(outcomes) == 1
        assert history.was_flushed or (attempt, outcomes[0]) == final[call_id]


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=120, suppress_health_check=SLOW)
@given(plans=_plans, ops=_ops)
@example(plans=[["safe_write"]], ops=[("meanwhile", 2), ("run", 0)]).via("the first attempt ends while the second runs")
def test_history_of_attempts_leaves_one_result_a_call(plans: list[list[str]], ops: list[Op]) -> None:
    """Complete, late, twice, dead before or after the effect, lost, cancelled, flushed, in any order."""
    check(plans, ops)


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
@settings(max_examples=5_000, suppress_health_check=SLOW)
@given(plans=_plans, ops=_ops)
def test_thousands_of_histories_leave_one_result_a_call(plans: list[list[str]], ops: list[Op]) -> None:
    """The same, for longer."""
    check(plans, ops)
