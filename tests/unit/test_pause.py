"""A provider that takes a break from tools of its own: ``pause_turn`` is no answer."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.budget import BudgetLimits
from harness_worker.core.decisions import Decision
from harness_worker.core.progress import Dispatch, Finished, Next
from harness_worker.core.reply_commit import Said, plan
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import NOW, a_held_turn, a_visit, event_types, said, snapshot

TURN = a_held_turn()
PAUSED = replace(said(text="Let me search.", stop_reason="pause_turn"), content=({"type": "text", "text": "…"},))


def planned(reply: Said, *, max_steps: int = 6) -> Decision[Next]:
    """The commit that takes a reply."""
    turn = replace(TURN, budget=BudgetLimits(max_steps=max_steps))
    return plan(snapshot(turn), visit=a_visit(turn), said=reply)


def test_pause_closes_its_step_and_opens_the_next() -> None:
    """The message stands, the turn is released and looked at again at once: visits have a time limit."""
    decision = planned(PAUSED)
    assert event_types(decision) == ["model.completed", "step.completed", "step.started"]
    assert [event.data["step"] for event in decision.events] == [0, 0, 1]
    assert len(decision.messages) == 1
    assert isinstance(decision.result, Dispatch)
    assert (decision.result.calls, decision.result.nudge) == ((), True)
    assert decision.turn is not None
    assert (decision.turn.owner, decision.turn.step, decision.turn.wake_at) == (None, 1, NOW)


def test_pause_at_the_last_step_ends_the_turn() -> None:
    """Pauses count as steps, so that they end."""
    decision = planned(PAUSED, max_steps=1)
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.MAX_STEPS)
    assert event_types(decision) == ["model.completed", "step.completed", "turn.incomplete"]


def test_pause_without_a_word_is_an_end() -> None:
    """An empty message cannot be sent back to go on from."""
    assert isinstance(planned(replace(PAUSED, content=())).result, Finished)
