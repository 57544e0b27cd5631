"""How a turn ends: with one terminal event, its final text, and a result for every call its model requested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness_worker.core.collect_reads import GONE_REPORT, ReadReport, as_run, never_begun, taken
from harness_worker.core.doubt import cancelled_read, never_entered, not_run, timed_out, unknown, worker_lost
from harness_worker.core.lifecycle import end_call
from harness_worker.core.outcomes import ToolOutcome, content_of, is_error
from harness_worker.core.reads import ReadState
from harness_worker.core.records import Call, CallStatus, EventDraft, Message, Turn, in_order
from harness_worker.core.visits import StopCause
from harness_worker.wire import EventType, StopReason, TurnStatus, as_mapping

NO_ANSWER_TEXT = "I could not produce a response."
FALLBACK_TEXTS: Mapping[StopReason, str] = {
    StopReason.MAX_STEPS: "I stopped before I could finish: the number of steps for this request is used up.",
    StopReason.DEADLINE: "I stopped before I could finish: the time for this request is over.",
    StopReason.BUDGET: "I stopped before I could finish: the budget for this request is used up.",
    StopReason.NO_PROGRESS: "I stopped before I could finish: I kept asking for the same and learned nothing new.",
}
_LAST: Mapping[TurnStatus, EventType] = {
    TurnStatus.COMPLETED: "turn.completed",
    TurnStatus.INCOMPLETE: "turn.incomplete",
    TurnStatus.FAILED: "turn.failed",
    TurnStatus.CANCELLED: "turn.cancelled",
}
STOPPED_BECAUSE: Mapping[StopCause, str] = {
    StopCause.CANCELLED: "the turn was cancelled",
    StopCause.DEADLINE: "the turn's time ended",
    StopCause.FAILED: "the turn failed",
}


def end_turn(
    turn: Turn,
    status: TurnStatus,
    reason: StopReason,
    *,
    now: float,
    error: Mapping[str, str] | None = None,
) -> Turn:
    """The turn, ended: nobody holds it and nobody need look at it again.

    The text of an incomplete turn is a fallback that says why; every other turn keeps what was said.
    """
    return replace(
        turn,
        status=status,
        stop_reason=reason,
        output_text=FALLBACK_TEXTS.get(reason, turn.output_text),
        error=error,
        owner=None,
        lease_until=None,
        visit_deadline=None,
        wake_at=None,
        finished_at=now,
    )


def terminal_event(turn: Turn) -> EventDraft:
    """The last event of an ended turn."""
    data: dict[str, Any] = {
        "status": turn.status.value,
        "stop_reason": turn.stop_reason.value if turn.stop_reason is not None else None,
        "output_text": turn.output_text,
        "error": dict(turn.error) if turn.error is not None else None,
        "decision": turn.decision.value if turn.decision is not None else None,
    }
    if turn.citations:
        data["citations"] = [as_mapping(citation) for citation in turn.citations]
    if turn.preparation is not None and turn.preparation.summary is not None:
        data["context_was_compacted"] = True
    return EventDraft(type=_LAST[turn.status], data=data)


def result_message(calls: Iterable[Call]) -> tuple[Message, ...]:
    """One user message with one result for each call that has none yet, in the model's order; empty if all have one."""
    due = in_order(call for call in calls if not call.collected)
    if not due:
        return ()
    return (Message(role="user", content=[_result_block(call) for call in due]),)


def with_results_told(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The calls, marked as having their result messages in the history."""
    return tuple(replace(call, collected=True) for call in calls if not call.collected)


def stop_calls(
    calls: Sequence[Call], cause: StopCause, reports: Mapping[str, ReadReport], *, now: float
) -> tuple[Call, ...]:
    """Every call with an outcome, though some were cut short; calls of agents are ended in ``children.cut``."""
    return tuple(_stopped(call, cause, reports.get(call.call_id, GONE_REPORT), now=now) for call in calls)


def _stopped(call: Call, cause: StopCause, report: ReadReport, *, now: float) -> Call:
    if call.status is CallStatus.ENDED:
        return call
    if call.answered is not None:
        return end_call(call, call.answered, now=now)
    if call.is_read:
        return _stopped_read(call, cause, report, now=now)
    if (call.status is CallStatus.RUNNING or call.attempt > 1) and not never_entered(call):
        return end_call(call, unknown(call, STOPPED_BECAUSE[cause]), now=now)
    return end_call(call, not_run(call, STOPPED_BECAUSE[cause]), now=now)


def _stopped_read(call: Call, cause: StopCause, report: ReadReport, *, now: float) -> Call:
    if report.outcome is not None:
        return taken(call, report, report.outcome, now=now)
    if call.status is CallStatus.PLANNED or not report.has_started:
        return never_begun(call, report, STOPPED_BECAUSE[cause], now=now)
    seen = as_run(call, report)
    return end_call(seen, _cut_off(seen, cause, report, now=now), now=now)


def _cut_off(read: Call, cause: StopCause, report: ReadReport, *, now: float) -> ToolOutcome:
    """The outcome of a read that had started; one whose process died before the deadline had not all its time (ADR 13).

    After a cancel nobody can say whether the process died by itself or because of it.
    """
    if cause is not StopCause.DEADLINE:
        return cancelled_read(read, now=now)
    return worker_lost(read) if report.state is ReadState.LOST else timed_out(read)


def _result_block(call: Call) -> dict[str, Any]:
    outcome = call.outcome
    content = content_of(outcome) if outcome is not None else ""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.tool_use_id, "content": content}
    if outcome is not None and is_error(outcome):
        block["is_error"] = True
    return block
