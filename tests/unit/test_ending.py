"""How a turn ends: its last text, its terminal event, and a result for every call it ever asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness_worker.core.collect_reads import ReadReport
from harness_worker.core.doubt import not_run
from harness_worker.core.ending import end_turn, result_message, stop_calls, terminal_event, with_results_told
from harness_worker.core.outcomes import DenialReason, ToolDenied, content_of, elapsed_ms_of
from harness_worker.core.reads import ReadState
from harness_worker.core.records import Approval, Call, CallStatus
from harness_worker.core.visits import StopCause
from harness_worker.wire import StopReason, Strategy, TurnStatus
from tests.unit.builders import DEADLINE, NOW, a_call, a_held_turn, a_turn, a_write, ended, failed, ok, pending, running

LIVE = ReadReport(state=ReadState.LIVE, started_at=NOW, worker="w")


def stopped(call: Call, cause: StopCause = StopCause.CANCELLED, report: ReadReport | None = None) -> Call:
    """What a stop makes of one call."""
    (after,) = stop_calls((call,), cause, {} if report is None else {call.call_id: report}, now=NOW)
    return after


def content(call: Call) -> str:
    """What the model would read."""
    assert call.outcome is not None
    assert call.status is CallStatus.ENDED
    return content_of(call.outcome)


def test_ended_turn_is_nobodys() -> None:
    """No owner, no lease, and nobody need ever look again."""
    over = end_turn(a_held_turn(), TurnStatus.COMPLETED, StopReason.END_TURN, now=NOW + 9)
    assert (over.owner, over.lease_until, over.visit_deadline, over.wake_at) == (None, None, None, None)
    assert (over.finished_at, over.status) == (NOW + 9, TurnStatus.COMPLETED)


@pytest.mark.parametrize("reason", [StopReason.MAX_STEPS, StopReason.DEADLINE, StopReason.BUDGET])
def test_turn_cut_short_by_a_limit_says_so(reason: StopReason) -> None:
    """The fallback text tells why, instead of half an answer."""
    over = end_turn(a_turn(output_text="so far"), TurnStatus.INCOMPLETE, reason, now=NOW)
    assert over.output_text.startswith("I stopped before I could finish: ")


@pytest.mark.parametrize("reason", [StopReason.MAX_TOKENS, StopReason.REFUSAL, StopReason.CANCELLED])
def test_other_turns_keep_what_was_said(reason: StopReason) -> None:
    """What the model said so far stays."""
    assert end_turn(a_turn(output_text="so far"), TurnStatus.FAILED, reason, now=NOW).output_text == "so far"


def test_terminal_event_tells_all() -> None:
    """Its type is the status; its data the answer."""
    over = end_turn(
        a_turn(output_text="hi", decision=Strategy.TOOL_ASSISTED),
        TurnStatus.FAILED,
        StopReason.MODEL_ERROR,
        now=NOW,
        error={"code": "model_error", "message": "no"},
    )
    event = terminal_event(over)
    assert event.type == "turn.failed"
    assert event.data == {
        "status": "failed",
        "stop_reason": "model_error",
        "output_text": "hi",
        "error": {"code": "model_error", "message": "no"},
        "decision": "tool_assisted",
    }
    plain = terminal_event(a_turn(status=TurnStatus.COMPLETED))
    assert (plain.data["stop_reason"], plain.data["error"], plain.data["decision"]) == (None, None, None)


def test_results_stand_in_the_models_order() -> None:
    """One block a call that has none yet; errors are marked."""
    calls = (ended(a_call(1), failed(a_call(1))), ended(a_call(0)), replace(ended(a_call(2)), collected=True))
    (message,) = result_message(calls)
    assert message.role == "user"
    assert message.content == [
        {"type": "tool_result", "tool_use_id": "use-0", "content": "done"},
        {"type": "tool_result", "tool_use_id": "use-1", "content": "boom", "is_error": True},
    ]


def test_no_results_no_message() -> None:
    """An empty user message would be refused by providers."""
    assert result_message(()) == ()
    assert result_message((replace(ended(a_call()), collected=True),)) == ()


def test_result_of_a_call_without_an_outcome_is_empty() -> None:
    """It cannot happen; if it does, the message still has its block."""
    (message,) = result_message((a_call(),))
    assert message.content == [{"type": "tool_result", "tool_use_id": "use-0", "content": ""}]


def test_collected_marks_each_call_once() -> None:
    """Calls whose results stood before are not written again."""
    assert [call.position for call in with_results_told((replace(a_call(0), collected=True), a_call(1)))] == [1]


def test_stop_keeps_what_ended() -> None:
    """An outcome in the journal or at the gate stands."""
    over = ended(a_write())
    assert stopped(over) is over
    read = pending(a_call())
    report = ReadReport(state=None, outcome=ok(read), started_at=NOW, finished_at=NOW, worker="w")
    assert content(stopped(read, report=report)) == "done"


@pytest.mark.parametrize("call", [a_call, a_write])
def test_stop_comes_before_a_gate_that_would_have_refused(call: Callable[..., Call]) -> None:
    """A call whose wave never came is not run, even if it was invalid."""
    invalid = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.VALIDATION, details="bad")
    assert content(stopped(call(outcome=invalid))) == "denied: not_run: the turn was cancelled"


def test_stop_keeps_a_persons_denial() -> None:
    """What a person was told about their answer stays true."""
    said = ToolDenied(call_id="0.0", tool_name="tool0", reason=DenialReason.APPROVAL, details="no")
    answered = a_call(outcome=said, approval=Approval(decision="deny", is_resolved=True))
    assert content(stopped(answered)) == "denied: approval: no"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (StopCause.CANCELLED, "cancelled"),
        (StopCause.FAILED, "cancelled"),
        (StopCause.DEADLINE, "timeout: tool0 did not finish within 10 s"),
    ],
)
def test_stop_cuts_a_read_that_runs(cause: StopCause, expected: str) -> None:
    """A cut read is a failure, or a timeout if time was the reason."""
    call = stopped(pending(a_call()), cause, LIVE)
    assert content(call) == expected
    assert (call.worker, call.started_at) == ("w", NOW)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (StopCause.CANCELLED, "cancelled"),
        (StopCause.DEADLINE, "worker_lost: the process running tool0 was lost once"),
    ],
)
def test_read_whose_process_died_before_the_turns_deadline_did_not_time_out(cause: StopCause, expected: str) -> None:
    """It had not all its time. After a cancel, its process may have been ended because of that."""
    call = stopped(pending(a_call()), cause, ReadReport(state=ReadState.LOST, started_at=NOW - 60, worker="w"))
    assert content(call) == expected
    assert (call.worker, call.started_at) == ("w", NOW - 60)


def test_cut_read_tells_the_time_it_had() -> None:
    """Its tool's, or what was left of its turn's; a cancelled one how long it ran."""
    late = ReadReport(state=ReadState.EXPIRED, started_at=DEADLINE - 2.5, worker="w")
    outcome = stopped(pending(a_call()), StopCause.DEADLINE, late).outcome
    assert outcome is not None
    assert content_of(outcome) == "timeout: tool0 did not finish within 2.5 s"
    assert elapsed_ms_of(outcome) == 2_500
    cancelled = stopped(pending(a_call()), StopCause.CANCELLED, replace(LIVE, started_at=NOW - 0.75)).outcome
    assert cancelled is not None
    assert elapsed_ms_of(cancelled) == 750


@pytest.mark.parametrize(
    ("call", "report"),
    [
        (a_call(), None),
        (pending(a_call()), ReadReport(state=ReadState.UNADMITTED)),
        (a_write(), None),
        (pending(a_write()), None),
        (replace(running(a_write()), worker=None), None),
    ],
)
@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (StopCause.CANCELLED, "the turn was cancelled"),
        (StopCause.DEADLINE, "the turn's time ended"),
        (StopCause.FAILED, "the turn failed"),
    ],
)
def test_stop_of_what_never_started_says_not_run(
    call: Call, report: ReadReport | None, cause: StopCause, why: str
) -> None:
    """A planned or waiting call, even one that waits for its lock, certainly had no effect."""
    assert content(stopped(call, cause, report)) == f"denied: not_run: {why}"


@pytest.mark.parametrize("call", [running(a_write()), pending(a_write(attempt=2))])
def test_stop_of_a_write_that_ever_started_is_in_doubt(call: Call) -> None:
    """A running write, and one that waits for another attempt, may have had their effect."""
    after = stopped(call)
    assert content(after).startswith("outcome_unknown: tool0 started and the turn was cancelled")
    assert after.outcome != not_run(call, "the turn was cancelled")


@pytest.mark.parametrize("cause", list(StopCause))
@pytest.mark.parametrize("state", [ReadState.UNADMITTED, ReadState.EXPIRED, ReadState.CLOSED])
def test_stop_of_a_read_that_waits_for_another_attempt_tells_of_the_last(cause: StopCause, state: ReadState) -> None:
    """That one began and was lost: attempt, start and process are its own, whatever kept it from running again."""
    after = stopped(pending(a_call(attempt=3, started_at=NOW - 9, worker="w/1")), cause, ReadReport(state=state))
    assert content(after) == "worker_lost: the process running tool0 was lost 2 times"
    assert (after.attempt, after.started_at, after.worker) == (2, NOW - 9, "w/1")


@pytest.mark.parametrize(("attempt", "times"), [(1, "once"), (2, "2 times")])
def test_stop_of_a_read_whose_attempt_is_forgotten_tells_of_no_other(attempt: int, times: str) -> None:
    """The gate was flushed: the body may have been entered in this attempt, and nobody knows when."""
    after = stopped(pending(a_call(attempt=attempt, started_at=NOW - 9, worker="w/1")))
    assert content(after) == f"worker_lost: the process running tool0 was lost {times}"
    assert (after.attempt, after.started_at, after.worker) == (attempt, None, None)
