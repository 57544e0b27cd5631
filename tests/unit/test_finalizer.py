"""The steps with which a turn ends: each may fail alone, none keeps the turn from its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.budget import Usage
from harness_worker.core.decisions import Decision
from harness_worker.core.records import Turn
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.hooks import Hooks, TurnEnd, UsageReport
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.sealing import SEALS, Seal
from harness_worker.errors import ModelError, ToolError, TransientError
from harness_worker.ports import ModelReply, ignore
from harness_worker.turn.finalizer import Finalizer
from harness_worker.wire import MEMORY, Strategy, TurnStatus
from tests.unit.engine_kit import TURN_ID, Engine, answers, raising

JUDGES = ("brief", "kind")
SENT = [(TURN_ID, judge) for judge in JUDGES]


class Told(Hooks):
    """Notes what it is told of the end; raises at one point, if so asked."""

    def __init__(self, broken: str = "") -> None:
        self.told: list[str] = []
        self.ends: list[TurnEnd] = []
        self.broken = broken

    def on_usage(self, event: UsageReport) -> None:
        """Note it."""
        self._note("usage", event)

    def on_turn_end(self, event: TurnEnd) -> None:
        """Note it."""
        self.ends.append(event)
        self._note("turn_end", event)

    def _note(self, step: str, _event: object) -> None:
        self.told.append(step)
        if step == self.broken:
            raise ValueError(step)


def broken(_decision: Decision[Any], _turn: Turn, _agent: AgentSpec | None) -> Decision[Any]:
    """A step of the commit that fails."""
    raise ValueError("no")


def sealed_by(engine: Engine, *seals: tuple[str, Seal], **options: Any) -> Finalizer:  # noqa: ANN401 - any of an agent's
    """Have the engine end turns with these steps in the commit, and two judges score them, or with other options."""
    finalizer = Finalizer(
        agents={
            name: replace(agent, **{"judges": JUDGES, **options}) for name, agent in engine.coordinator.agents.items()
        },
        store=engine.coordinator.store,
        hooks=engine.hooks,
        dispatcher=engine.coordinator.dispatcher,
        on_failure=engine.failed,
        trace=ignore,
        seals=seals,
    )
    object.__setattr__(engine.coordinator, "finalizer", finalizer)
    return finalizer


def with_broken(step: str) -> tuple[tuple[str, Seal], ...]:
    """The steps of the commit, one of them broken."""
    return tuple((name, broken if name == step else seal) for name, seal in SEALS)


@pytest.mark.parametrize("step", [*(name for name, _ in SEALS), "usage", "send", "turn_end"])
def test_each_step_may_fail_alone(step: str) -> None:
    """The turn ends, its answer stands, the failure is counted, and every other step is done."""
    hooks = Told(step)
    engine = Engine(hooks)
    sealed_by(engine, *with_broken(step))
    if step == "send":
        engine.seen_sent.before["judge"].append(raising(ValueError("no")))
    engine.says(answers("ok"))
    engine.advance()
    assert (engine.turn.status, engine.turn.output_text) == (TurnStatus.COMPLETED, "ok")
    assert (engine.event_types[-1], engine.event_types.count("turn.completed")) == ("turn.completed", 1)
    assert hooks.told == ["usage", "turn_end"]
    assert engine.failures.total() == 1
    assert engine.store.judges == ([] if step == "judges" else SENT)
    assert engine.sent.judged == ([] if step == "send" else SENT)
    assert engine.turn.decision is (None if step == "decision" else Strategy.DIRECT_ANSWER)


def test_commit_that_fails_is_no_end() -> None:
    """Step 3 is the commit itself: refused, the turn goes on, and the next look ends it once."""
    hooks = Told()
    engine = Engine(hooks)
    engine.says(answers("lost"), answers("ok"))
    engine.seen_store.before["transact"] += [lambda: None, raising(TransientError("away"))]
    engine.advance()
    assert (engine.turn.status.is_final, hooks.told) == (False, [])
    engine.clock.wait(30.0)
    engine.advance()
    assert (engine.turn.output_text, hooks.told) == ("ok", ["usage", "turn_end"])


@pytest.mark.parametrize("error", [TransientError("away"), OSError(5, "Input/output error")])
def test_step_that_meets_no_bug_is_left_out_in_one_line(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A traceback would make operators look for a bug."""
    engine = Engine(Told())
    sealed_by(engine, *SEALS)
    engine.seen_sent.before["judge"].append(raising(error))
    engine.says(answers("ok"))
    engine.advance()
    told = [record for record in caplog.records if record.message.startswith("step judges of the end of turn")]
    assert [(record.levelname, record.exc_info) for record in told] == [("WARNING", None)]


def test_journal_that_cannot_be_read_after_the_end_is_told_to_nobody() -> None:
    """The end stands; who was to be told is not."""
    hooks = Told()
    engine = Engine(hooks)
    engine.says(answers("ok"))
    engine.seen_store.before["load"].append(raising(TransientError("away")))
    engine.advance()
    assert (engine.turn.status, hooks.told) == (TurnStatus.COMPLETED, [])
    assert engine.failures == {"load": 1}


def test_report_raises_nothing() -> None:
    """Neither of a turn whose agent is served elsewhere, nor of one that has been pruned since."""
    engine = Engine(Told())
    engine.finalizer.report(replace(engine.turn, agent="elsewhere"))
    engine.finalizer.report(replace(engine.turn, id="pruned"))
    assert engine.failures == {}


def test_decision_follows_from_the_calls_that_succeeded() -> None:
    """It stands in the turn, in its last event, and in what hooks are told."""
    hooks = Told()
    engine = Engine(hooks, look=Effect.READ_ONLY, bad=Effect.LOCAL_WRITE)

    engine.bodies["bad"] = raising(ToolError("no"))
    engine.dispatched("bad")
    engine.run()
    engine.says(answers("sorry"))
    engine.advance()
    assert engine.turn.decision is Strategy.DIRECT_ANSWER
    other = Engine(hooks)
    other.dispatched("look")
    other.run()
    other.says(answers("so"))
    other.advance()
    assert other.turn.decision is Strategy.TOOL_ASSISTED
    assert other.store.events[-1].data["decision"] == "tool_assisted"
    assert [end.decision for end in hooks.ends] == [Strategy.DIRECT_ANSWER, Strategy.TOOL_ASSISTED]


def test_turn_that_ends_as_it_is_opened_is_sealed_too() -> None:
    """The commit that claims a turn may end it: no step is left once its write has ended."""
    engine = Engine(Told())
    engine.dispatched("write")
    engine.run()
    engine.store.turns[TURN_ID] = replace(engine.turn, used=Usage(steps=6))
    engine.advance()
    assert (engine.turn.status, engine.turn.decision) == (TurnStatus.INCOMPLETE, Strategy.TOOL_ASSISTED)


@pytest.mark.parametrize(
    ("reply", "judged"),
    [
        (answers("ok"), True),
        (replace(answers("so f"), stop_reason="max_tokens"), True),
        (ModelError("refused"), False),
    ],
)
def test_turn_with_an_answer_is_judged(reply: ModelReply | ModelError, judged: bool) -> None:
    """Whole or cut short; one that failed has nothing to judge."""
    engine = Engine()
    sealed_by(engine, *SEALS)
    engine.says(reply)
    engine.advance()
    assert engine.turn.status.is_final
    assert engine.store.judges == engine.sent.judged == (SENT if judged else [])


def test_coordinator_that_dies_at_the_end_leaves_the_scores_due() -> None:
    """The commit has them; the message after it is only sooner. Another look at the ended turn adds none."""
    engine = Engine()
    sealed_by(engine, *SEALS)
    engine.says(answers("ok"))

    class Died(BaseException):
        """The process is gone."""

    engine.seen_store.after["transact"] += [lambda: None, raising(Died())]
    with pytest.raises(Died):
        engine.advance()
    assert (engine.store.judges, engine.sent.judged) == (SENT, [])
    engine.clock.wait(30.0)
    engine.advance()
    assert (engine.store.judges, engine.sent.judged) == (SENT, [])


def test_turn_without_hooks_is_not_read_again() -> None:
    """Who uses none of it pays for none of it."""
    engine = Engine()
    engine.says(answers("ok"))
    engine.seen_store.before["load"].append(raising(AssertionError("read")))
    engine.advance()
    assert engine.turn.status is TurnStatus.COMPLETED
    assert engine.failures == {}


def test_agent_that_only_remembers_is_judged_at_once() -> None:
    """What is to be remembered is looked for as soon as the turn has ended, with or without hooks and judges."""
    engine = Engine()
    sealed_by(engine, judges=(), memory="told")
    engine.says(answers("ok"))
    engine.advance()
    assert engine.sent.judged == [(TURN_ID, MEMORY)]
