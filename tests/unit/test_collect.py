"""The commit in which a visit collects: take outcomes, wait, run calls again, or continue; only by the holder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness_worker.core.collect import collect
from harness_worker.core.collect_reads import ReadReport
from harness_worker.core.decisions import Decision
from harness_worker.core.outcomes import content_of
from harness_worker.core.progress import AskModel, Dispatch, Finished, Next
from harness_worker.core.reads import ReadState
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import (
    DEADLINE,
    NOW,
    TIMING,
    a_call,
    a_held_turn,
    a_visit,
    a_write,
    call_of,
    ended,
    event_types,
    ok,
    pending,
    running,
    snapshot,
)

TURN = a_held_turn(step=1)
LIVE = ReadReport(state=ReadState.LIVE, started_at=NOW)


def collected(
    *calls: Call,
    turn: Turn = TURN,
    reports: Mapping[str, ReadReport] | None = None,
    now: float = NOW,
    claimed: Turn = TURN,
    claimed_at: float = NOW,
) -> Decision[Next]:
    """What a visit commits for these calls."""
    visit = a_visit(claimed, *calls, now=claimed_at)
    return collect(snapshot(turn, *calls, now=now), visit=visit, reports=reports or {})


def done(call: Call) -> ReadReport:
    """The report of a read whose outcome the gate has."""
    return ReadReport(state=None, outcome=ok(call), started_at=NOW, finished_at=NOW, worker="w")


def test_visit_waits_for_what_lives() -> None:
    """The turn is released until a look-in, later each time; outcomes taken so far are stored."""
    first, second = pending(a_call(0)), pending(a_call(1))
    decision = collected(first, second, reports={"0.0": done(first), "0.1": LIVE})
    assert isinstance(decision.result, Dispatch)
    assert decision.result.calls == ()
    assert not decision.result.nudge
    assert call_of(decision, 0).status is CallStatus.ENDED
    assert decision.turn is not None
    assert (decision.turn.owner, decision.turn.looks, decision.turn.wake_at) == (None, 1, NOW + 2 * TIMING.look_s)
    assert decision.messages == ()


def test_visit_comes_back_when_a_live_read_may_be_lost() -> None:
    """The gate says until when it presumes the read alive."""
    decision = collected(pending(a_call()), reports={"0.0": replace(LIVE, lease_s=0.7)})
    assert decision.turn is not None
    assert decision.turn.wake_at == NOW + 0.7


def test_visit_sends_again_what_was_lost() -> None:
    """A lost message is not waited for until the deadline."""
    call = pending(a_call())
    decision = collected(call, reports={"0.0": ReadReport(state=ReadState.UNADMITTED)})
    assert isinstance(decision.result, Dispatch)
    assert (decision.result.calls, decision.result.remaining_s) == ((call,), TURN.deadline_at - NOW)
    assert decision.calls == ()


def test_visit_that_was_nudged_publishes_again() -> None:
    """A wake-up during the visit is neither lost nor delayed until the look-in."""
    nudged = replace(TURN, wakes=1)
    decision = collected(pending(a_call()), turn=nudged, reports={"0.0": LIVE})
    assert isinstance(decision.result, Dispatch)
    assert decision.result.nudge
    assert decision.turn is not None
    assert decision.turn.wake_at == NOW


def test_visit_goes_on_when_nothing_is_open() -> None:
    """The commit that ends the step has exactly one result a call; then the model is asked."""
    first, second = pending(a_call(0)), pending(a_call(1))
    decision = collected(first, second, reports={"0.0": done(first), "0.1": done(second)})
    assert isinstance(decision.result, AskModel)
    (message,) = decision.messages
    assert [block["tool_use_id"] for block in message.content] == ["use-0", "use-1"]
    assert all(call.collected for call in decision.calls)
    assert event_types(decision) == [
        "tool.completed",
        "tool.completed",
        "wave.completed",
        "step.completed",
        "step.started",
    ]


def test_collected_turn_goes_straight_to_the_model() -> None:
    """If the step's results are stored already, none is added."""
    over = replace(ended(a_call()), collected=True)
    decision = collected(over)
    assert isinstance(decision.result, AskModel)
    assert decision.messages == ()


def test_write_judged_by_the_journal() -> None:
    """The gate's report on a write does not count, because SQL is its only arbiter."""
    call = running(a_write())
    decision = collected(call, reports={"0.0": done(call)})
    assert isinstance(decision.result, Dispatch)
    assert decision.calls == ()


def test_cancel_at_the_claim_ends_the_turn() -> None:
    """Outcomes that the gate accepted are kept, other calls are cut, and each has one result."""
    cancelled = replace(TURN, cancel_requested=True)
    first, second, third = pending(a_call(0)), pending(a_call(1)), running(a_write(2, wave=1))
    reports = {"0.0": done(first), "0.1": LIVE}
    decision = collected(first, second, third, turn=cancelled, claimed=cancelled, reports=reports)
    assert isinstance(decision.result, Finished)
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.stop_reason) == (TurnStatus.CANCELLED, StopReason.CANCELLED)
    contents = [block["content"] for block in decision.messages[0].content]
    assert contents[:2] == ["done", "cancelled"]
    assert contents[2].startswith("outcome_unknown: ")
    assert event_types(decision)[-2:] == ["step.completed", "turn.cancelled"]


def test_cancel_during_the_visit_waits_for_open_calls() -> None:
    """The gate was not closed for it, so open calls are left to the next visit, which the cancel has made due."""
    cancelled = replace(TURN, cancel_requested=True, wakes=1)
    decision = collected(pending(a_call()), turn=cancelled, reports={"0.0": LIVE})
    assert isinstance(decision.result, Dispatch)
    assert decision.result.nudge


def test_cancel_during_the_visit_ends_a_turn_without_open_calls() -> None:
    """No call can still run, so nothing has to be closed first."""
    cancelled = replace(TURN, cancel_requested=True)
    decision = collected(ended(a_call()), a_write(1), turn=cancelled)
    assert isinstance(decision.result, Finished)
    assert content_of(call_of(decision, 1).outcome or ok(a_write())) == "denied: not_run: the turn was cancelled"


def test_deadline_at_the_claim_ends_the_turn() -> None:
    """The turn ends as incomplete, with the stop reason ``deadline``."""
    late = DEADLINE + 1
    decision = collected(pending(a_call()), now=late, claimed_at=late, reports={"0.0": LIVE})
    assert decision.turn is not None
    assert (decision.turn.status, decision.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.DEADLINE)
    assert decision.turn.output_text == "I stopped before I could finish: the time for this request is over."
    assert decision.messages[0].content[0]["content"].startswith("timeout: ")


def test_lost_unsafe_write_lets_the_next_step_begin() -> None:
    """Later calls of its message do not run; the model reads that, and is asked again."""
    decision = collected(running(a_write(0), lease_until=NOW), pending(a_write(1)), now=NOW)
    assert isinstance(decision.result, AskModel)
    assert [block["is_error"] for block in decision.messages[0].content] == [True, True]
