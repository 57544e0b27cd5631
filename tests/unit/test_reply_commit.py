"""Taking the model's word: its message and plan in one commit, or the end of the turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.budget import Usage
from harness_worker.core.decisions import Decision
from harness_worker.core.outcomes import DenialReason, ToolDenied
from harness_worker.core.progress import AskHooks, Dispatch, Finished, Next
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.reply_commit import Said, give_up, go_on_asked, plan
from harness_worker.core.visits import StopCause
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import (
    DEADLINE,
    NOW,
    OWNER,
    a_call,
    a_held_turn,
    a_visit,
    a_write,
    call_of,
    ended,
    event_types,
    pending,
    running,
    said,
    snapshot,
)

TURN = a_held_turn()
DENIED = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.PRE_HOOK, details="no")


def planned(reply: Said, *, turn: Turn = TURN, now: float = NOW) -> Decision[Next]:
    """The commit that takes a reply."""
    return plan(snapshot(turn, now=now), visit=a_visit(TURN), said=reply)


def given_up(
    *calls: Call,
    turn: Turn = TURN,
    reason: StopReason = StopReason.MODEL_ERROR,
    message: str = "overloaded",
    cause: StopCause | None = None,
    now: float = NOW,
) -> Decision[Finished]:
    """The commit that ends a turn without a reply."""
    before = snapshot(turn, *calls, now=now)
    return give_up(before, reason=reason, message=message, cause=cause)


def the_turn(decision: Decision[Any]) -> Turn:
    """The turn as the decision leaves it."""
    assert decision.turn is not None
    return decision.turn


def test_reply_with_calls_is_committed_with_its_plan() -> None:
    """Message, calls, usage and the first segment stand in one commit."""
    decision = planned(said(a_call(0), a_call(1), a_write(2, wave=1), text="let me see"))
    assert isinstance(decision.result, Dispatch)
    assert [call.position for call in decision.result.calls] == [0, 1]
    assert [call.status for call in decision.calls] == [CallStatus.PENDING, CallStatus.PENDING, CallStatus.PLANNED]
    (message,) = decision.messages
    assert (message.role, [block["type"] for block in message.content]) == (
        "assistant",
        ["text", "tool_use", "tool_use", "tool_use"],
    )
    turn = the_turn(decision)
    assert (turn.step, turn.owner, turn.output_text) == (1, None, "let me see")
    assert (turn.used.steps, turn.used.tool_calls, turn.used.output_tokens) == (1, 2, 1)
    assert event_types(decision) == ["model.completed", "wave.started"]


def test_model_completed_tells_text_and_tokens() -> None:
    """Steps and tool calls are the turn's counts, not the model's usage."""
    data = planned(said(text="hi", stop_reason="end_turn")).events[0].data
    assert (data["step"], data["text"], data["stop_reason"]) == (0, "hi", "end_turn")
    assert set(data["usage"]) == {
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "dollars"),
    }


def test_reply_without_calls_completes_the_turn() -> None:
    """The last text is the answer."""
    decision = planned(said(text="42", stop_reason="end_turn"), turn=a_held_turn(output_text="hmm"))
    assert isinstance(decision.result, Finished)
    turn = the_turn(decision)
    assert (turn.status, turn.stop_reason, turn.output_text) == (TurnStatus.COMPLETED, StopReason.END_TURN, "42")
    assert event_types(decision) == ["model.completed", "step.completed", "turn.completed"]


def test_reply_without_words_has_an_answer_nevertheless() -> None:
    """An empty answer would look like a fault of the client's."""
    assert the_turn(planned(said(stop_reason="end_turn"))).output_text == "I could not produce a response."


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("max_tokens", StopReason.MAX_TOKENS),
        ("model_context_window_exceeded", StopReason.MAX_TOKENS),
        ("refusal", StopReason.REFUSAL),
    ],
)
def test_reply_that_was_cut_ends_the_turn(stop_reason: str, expected: StopReason) -> None:
    """Half a tool call is not run; it has a result nevertheless."""
    bad, half = (
        ToolDenied(call_id=f"0.{n}", tool_name=f"tool{n}", reason=DenialReason.VALIDATION, details="bad")
        for n in (0, 2)
    )
    reply = said(*(a_write(0, outcome=bad), a_write(1), a_write(2, outcome=half)), text="half", stop_reason=stop_reason)
    decision = planned(reply)
    turn = the_turn(decision)
    assert (turn.status, turn.stop_reason, turn.output_text) == (TurnStatus.INCOMPLETE, expected, "half")
    contents = [block["content"] for block in decision.messages[1].content]
    assert contents == ["denied: validation: bad", *["denied: not_run: the reply was cut short"] * 2]


@pytest.mark.parametrize(
    ("turn", "now", "status"),
    [
        (a_held_turn(cancel_requested=True), NOW, TurnStatus.CANCELLED),
        (a_held_turn(), DEADLINE + 1, TurnStatus.INCOMPLETE),
    ],
)
def test_reply_to_a_turn_that_must_stop_starts_nothing(turn: Turn, now: float, status: TurnStatus) -> None:
    """What was said is kept; its calls are told as not run."""
    decision = planned(said(a_call(), text="so far"), turn=turn, now=now)
    assert isinstance(decision.result, Finished)
    assert the_turn(decision).status is status
    assert call_of(decision, 0).status is CallStatus.ENDED
    assert [message.role for message in decision.messages] == ["assistant", "user"]


def test_step_of_denied_calls_asks_again_in_another_visit() -> None:
    """A visit has a time limit: the next model call is the next visit's."""
    denied = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.VALIDATION, details="bad")
    decision = planned(said(a_call(0, outcome=denied)))
    assert isinstance(decision.result, Dispatch)
    assert (decision.result.calls, decision.result.nudge) == ((), True)
    turn = the_turn(decision)
    assert (turn.owner, turn.wake_at, turn.used.tool_calls) == (None, NOW, 0)
    assert [message.role for message in decision.messages] == ["assistant", "user"]
    assert event_types(decision)[-2:] == ["step.completed", "step.started"]


def test_calls_count_when_they_are_sent() -> None:
    """A call that is still to come, and may yet be denied, is not charged."""
    decision = planned(said(a_call(0), a_call(1), a_write(2, wave=1)))
    assert the_turn(decision).used.tool_calls == 2


def answered(*calls: Call, turn: Turn = TURN) -> Decision[Next]:
    """The commit after the hooks had their word."""
    before = [replace(call, hooked=True, outcome=None) for call in calls]
    return go_on_asked(snapshot(turn, *before), visit=a_visit(TURN), answered=calls)


def test_plan_waits_for_the_hooks_word() -> None:
    """The message and its calls stand; the turn is held while hooks are asked; none of the calls is out."""
    decision = planned(said(a_call(0, hooked=True), a_write(1, wave=1, hooked=True)))
    assert isinstance(decision.result, AskHooks)
    assert [call.position for call in decision.result.calls] == [0]
    turn = the_turn(decision)
    assert (turn.owner, turn.used.tool_calls) == (OWNER, 0)
    assert all(call.status is CallStatus.PLANNED for call in decision.calls)


def test_calls_go_out_as_hooks_left_them() -> None:
    """With other arguments, or not at all."""
    held = a_held_turn(step=1)
    decision = answered(a_call(0, arguments={"n": 2}), a_call(1, outcome=DENIED), turn=held)
    assert isinstance(decision.result, Dispatch)
    assert [(call.position, call.arguments) for call in decision.result.calls] == [(0, {"n": 2})]
    assert call_of(decision, 1).status is CallStatus.ENDED


def test_model_is_asked_in_another_visit_when_hooks_denied_all() -> None:
    """Hooks may have taken their time."""
    decision = answered(a_call(0, outcome=DENIED), turn=a_held_turn(step=1))
    assert isinstance(decision.result, Dispatch)
    assert (decision.result.calls, decision.result.nudge, the_turn(decision).owner) == ((), True, None)


def test_hooks_word_comes_too_late_for_a_turn_that_must_stop() -> None:
    """Nothing is sent."""
    stopped = answered(a_call(0), turn=a_held_turn(step=1, cancel_requested=True))
    assert the_turn(stopped).status is TurnStatus.CANCELLED


def test_calls_that_never_ran_are_given_back() -> None:
    """What was sent and ended as not run was no tool call."""
    turn = a_held_turn(step=1, used=Usage(steps=1, tool_calls=2))
    decision = given_up(ended(a_call(0), deadline_at=DEADLINE), pending(a_write(1)), turn=turn)
    assert the_turn(decision).used.tool_calls == 1


def test_failed_model_ends_the_turn_as_failed() -> None:
    """The error has a code and a message; what was said so far is kept."""
    decision = given_up(turn=a_held_turn(output_text="so far"))
    turn = the_turn(decision)
    assert (turn.status, turn.stop_reason, turn.output_text) == (TurnStatus.FAILED, StopReason.MODEL_ERROR, "so far")
    assert turn.error == {"code": "model_error", "message": "overloaded"}
    assert event_types(decision) == ["step.completed", "turn.failed"]


def test_failure_is_told_in_storable_words() -> None:
    """A provider's message may hold what neither database nor JSON does."""
    error = the_turn(given_up(message="bad \x00 and \ud800")).error
    assert error == {"code": "model_error", "message": "bad \ufffd and \ufffd"}


def test_turn_that_fails_gives_every_open_call_a_result() -> None:
    """A fault of ours in the middle of a step leaves no call without one, and none that claims to be still open."""
    calls = (ended(a_call(0)), pending(a_write(1)), running(a_write(2)), a_write(3))
    decision = given_up(*calls, turn=a_held_turn(step=1), reason=StopReason.INTERNAL)
    contents = [block["content"] for block in decision.messages[0].content]
    assert contents[0] == "done"
    assert contents[1] == contents[3] == "denied: not_run: the turn failed"
    assert contents[2].startswith("outcome_unknown: ")
    assert all(call_of(decision, position).status is CallStatus.ENDED for position in range(4))


def test_cancel_wins_over_a_failure() -> None:
    """The model's error is not told as the answer."""
    turn = the_turn(given_up(turn=a_held_turn(cancel_requested=True, output_text="so far")))
    assert (turn.status, turn.output_text, turn.error) == (TurnStatus.CANCELLED, "so far", None)


def test_cancelled_model_call_keeps_what_was_said() -> None:
    """The text that was there when the call was stopped is part of the answer."""
    turn = the_turn(
        given_up(
            turn=a_held_turn(output_text="first"),
            reason=StopReason.CANCELLED,
            message="half",
            cause=StopCause.CANCELLED,
        )
    )
    assert (turn.status, turn.output_text) == (TurnStatus.CANCELLED, "first\n\nhalf")


def test_model_that_took_too_long_ends_the_turn_as_incomplete() -> None:
    """The time of the turn was over first: that is not an error."""
    turn = the_turn(given_up(reason=StopReason.DEADLINE, message="", cause=StopCause.DEADLINE))
    assert (turn.status, turn.stop_reason, turn.error) == (TurnStatus.INCOMPLETE, StopReason.DEADLINE, None)
