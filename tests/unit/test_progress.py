"""What comes next when no call is open: the next segment, the next step, or the turn's end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision
from harness_worker.core.doubt import not_run
from harness_worker.core.gates import MODEL_FLOOR_S
from harness_worker.core.progress import AskModel, Dispatch, Finished, Next, exhausted, go_on, stop_turn
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.replay import after_step, fingerprint
from harness_worker.core.visits import StopCause
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import (
    DEADLINE,
    NOW,
    TIMING,
    a_call,
    a_held_turn,
    a_turn,
    a_visit,
    a_write,
    call_of,
    denied,
    ended,
    event_types,
    pending,
    snapshot,
)


def gone_on(*calls: Call, turn: Turn | None = None) -> Decision[Next]:
    """What comes next."""
    held = turn or a_held_turn(step=1)
    visit = a_visit(replace(held, wakes=0), *calls)
    return go_on(snapshot(held, *calls), visit, held, calls)


def test_next_segment_is_sent_with_the_turns_deadline() -> None:
    """The turn is released for a look-in soon; waiting in a queue does not use up the tool's own time."""
    decision = gone_on(ended(a_call(0)), a_write(1), turn=a_held_turn(step=1, looks=5))
    assert isinstance(decision.result, Dispatch)
    assert [call.position for call in decision.result.calls] == [1]
    assert decision.result.remaining_s == DEADLINE - NOW
    sent = call_of(decision, 1)
    assert (sent.status, sent.deadline_at, sent.attempt) == (CallStatus.PENDING, DEADLINE, 1)
    assert decision.turn is not None
    assert (decision.turn.owner, decision.turn.looks, decision.turn.wake_at) == (None, 0, NOW + TIMING.look_s)
    assert decision.messages == ()


def test_dispatch_knows_of_a_nudge() -> None:
    """After a wake-up during the visit, another look is published."""
    decision = gone_on(a_call(), turn=a_held_turn(step=1, wakes=1))
    assert isinstance(decision.result, Dispatch)
    assert decision.result.nudge


def test_step_ends_with_its_results_and_the_next_begins() -> None:
    """Denied calls at the end of the plan end in the same commit."""
    decision = gone_on(ended(a_call(0)), denied(a_write(1)))
    assert isinstance(decision.result, AskModel)
    assert decision.turn == decision.result.turn
    assert decision.turn is not None
    assert decision.turn.owner == "visit-1"
    assert [block["tool_use_id"] for block in decision.messages[0].content] == ["use-0", "use-1"]
    assert event_types(decision) == [
        "wave.started",
        "tool.completed",
        "wave.completed",
        "step.completed",
        "step.started",
    ]
    assert [event.data["step"] for event in decision.events[-2:]] == [0, 1]


def test_turn_out_of_steps_ends_incomplete() -> None:
    """The step's results are stored, and no further step begins."""
    turn = a_held_turn(step=1, budget=BudgetLimits(max_steps=1), used=Usage(steps=1))
    decision = gone_on(ended(a_call()), turn=turn)
    assert isinstance(decision.result, Finished)
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.MAX_STEPS)
    assert event_types(decision) == ["step.completed", "turn.incomplete"]
    assert len(decision.messages) == 1


def test_turn_that_ends_before_its_first_word_closes_the_open_step() -> None:
    """A step that was started is completed, though the model said nothing."""
    decision = gone_on(turn=a_held_turn(deadline_at=NOW - 1))
    assert event_types(decision) == ["step.completed", "turn.incomplete"]
    assert decision.events[0].data == {"step": 0}
    assert decision.messages == ()


@pytest.mark.parametrize("turn", [a_held_turn(budget=BudgetLimits(max_steps=0)), a_held_turn(started_at=None)])
def test_turn_that_began_no_step_closes_none(turn: Turn) -> None:
    """That is a turn that may not ask a model, or one that never started."""
    decision = stop_turn(snapshot(turn), turn, (), StopCause.CANCELLED)
    assert event_types(decision) == ["turn.cancelled"]


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (a_turn(), None),
        (a_turn(used=Usage(steps=6)), StopReason.MAX_STEPS),
        (a_turn(used=Usage(steps=5)), None),
        (a_turn(budget=BudgetLimits(max_tokens=10), used=Usage(input_tokens=9)), None),
        (
            a_turn(budget=BudgetLimits(max_tokens=10), used=Usage(steps=1, input_tokens=9, cache_read_tokens=1)),
            StopReason.BUDGET,
        ),
        (a_turn(budget=BudgetLimits(max_dollars=0.5), used=Usage(steps=1, dollars=0.5)), StopReason.BUDGET),
        (a_turn(budget=BudgetLimits(max_dollars=0.5), used=Usage(dollars=0.4)), None),
        (a_turn(budget=BudgetLimits(max_dollars=0.0)), None),
        (a_turn(deadline_at=NOW - 1, used=Usage(steps=6)), StopReason.DEADLINE),
        (a_turn(budget=BudgetLimits(max_tokens=0)), None),
        (a_turn(budget=BudgetLimits(max_tokens=0), used=Usage(steps=1)), None),
        (a_turn(budget=BudgetLimits(max_tokens=0), used=Usage(steps=1, output_tokens=1)), StopReason.BUDGET),
        (a_turn(budget=BudgetLimits(max_dollars=0.0), used=Usage(steps=1, dollars=0.01)), StopReason.BUDGET),
        (a_turn(budget=BudgetLimits(max_dollars=0.5), used=Usage(dollars=0.5)), None),
        (a_turn(recall=Recall(repeats=2)), None),
        (a_turn(recall=Recall(repeats=3)), StopReason.NO_PROGRESS),
        (a_turn(recall=Recall(repeats=3), used=Usage(steps=6)), StopReason.MAX_STEPS),
        (a_turn(deadline_at=NOW), None),
        (a_turn(deadline_at=NOW + 9), None),
        (a_turn(deadline_at=NOW + 9, used=Usage(steps=1)), StopReason.DEADLINE),
        (a_turn(deadline_at=NOW + MODEL_FLOOR_S, used=Usage(steps=1)), None),
        (a_turn(deadline_at=NOW + 9, used=Usage(steps=1), budget=BudgetLimits(timeout_s=30)), None),
    ],
)
def test_budget_is_exhausted_at_its_limits(turn: Turn, expected: StopReason | None) -> None:
    """Time, steps, tokens, dollars and then progress are checked; a first model call is always made."""
    assert exhausted(turn, now=NOW) is expected


def test_turn_that_stops_between_steps_counts_nothing_twice() -> None:
    """The calls of its last step have been told: they are neither free, a repeat nor still running once more."""
    call = ended(pending(a_write()), not_run(a_write(), "x"), collected=True)
    turn = a_held_turn(step=1, used=Usage(steps=1, tool_calls=1), recall=after_step(Recall(), [call]))
    decision = stop_turn(snapshot(turn, call), turn, (call,), StopCause.CANCELLED)
    assert decision.turn is not None
    assert (decision.turn.used, decision.turn.recall) == (turn.used, turn.recall)
    assert (decision.result.left, decision.messages) == ((), ())
    assert [(event.type, event.data.get("step")) for event in decision.events[:-1]] == [("step.completed", 1)]


def test_turn_without_progress_ends() -> None:
    """After three steps with the same calls and results, the turn ends with a text that says why."""
    recall = Recall()
    for step in range(2):
        recall = after_step(recall, [ended(a_call(0, step=step))])
    decision = gone_on(ended(a_call(0, step=2)), turn=a_held_turn(step=3, used=Usage(steps=3), recall=recall))
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.NO_PROGRESS)
    assert decision.turn.output_text.startswith("I stopped before I could finish: ")
    assert len(decision.messages) == 1


def test_calls_are_charged_when_sent_and_given_back_when_they_never_ran() -> None:
    """Denied calls are not charged; a call that was sent and ended as not run is given back."""
    turn = a_held_turn(step=1, used=Usage(steps=1, tool_calls=1))
    sent = gone_on(ended(a_call(0)), a_write(1), denied(a_write(2)), turn=turn)
    assert sent.turn is not None
    assert sent.turn.used.tool_calls == 2
    never = denied(a_write(1))
    over = gone_on(ended(a_call(0)), ended(never, never.outcome, deadline_at=DEADLINE), turn=sent.turn)
    assert over.turn is not None
    assert over.turn.used.tool_calls == 1


def test_step_is_remembered_in_the_commit_that_ends_it() -> None:
    """What its calls mean for later ones is stored together with their results."""
    call = a_call(0, idempotent=True)
    decision = gone_on(ended(call))
    assert decision.turn is not None
    assert decision.turn.recall.done == {fingerprint(call.tool, {}): "0.0"}
