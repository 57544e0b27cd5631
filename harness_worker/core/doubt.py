"""Outcomes of calls whose end nobody saw, and of calls that therefore never start."""

from __future__ import annotations

from collections.abc import Iterable

from harness_worker.core.lifecycle import end_call
from harness_worker.core.outcomes import (
    OUTCOME_UNKNOWN,
    WORKER_LOST,
    DenialReason,
    ToolDenied,
    ToolFailure,
    ToolOutcome,
    ToolTimeout,
)
from harness_worker.core.records import Call, CallStatus

LOCK_MISSED = "lock_missed"


def unknown(call: Call, why: str) -> ToolFailure:
    """The outcome of a call that started and whose effect may or may not have happened."""
    error = f"{OUTCOME_UNKNOWN}: {call.tool} started and {why}; its effect may or may not have happened"
    return call.failed(error, in_doubt=True)


def worker_lost(call: Call) -> ToolFailure:
    """The outcome of a call whose process died in each of its allowed attempts."""
    times = "once" if call.attempt == 1 else f"{call.attempt} times"
    doubt = "" if call.is_read else "; its effect may or may not have happened"
    error = f"{WORKER_LOST}: the process running {call.tool} was lost {times}{doubt}"
    return call.failed(error, in_doubt=not call.is_read)


def timed_out(call: Call) -> ToolTimeout:
    """The outcome of a read that ran out of time: its tool's, or what was left of its turn's when it started."""
    had_s = call.timeout_s
    if call.started_at is not None and call.deadline_at is not None:
        had_s = round(max(0.0, min(had_s, call.deadline_at - call.started_at)), 3)
    elapsed_ms = had_s * 1_000 if call.started_at is not None else 0.0
    return ToolTimeout(call_id=call.call_id, tool_name=call.tool, deadline_s=had_s, elapsed_ms=elapsed_ms)


def cancelled_read(call: Call, *, now: float) -> ToolFailure:
    """The outcome of a read that was running when its turn was cancelled."""
    ran_s = now - call.started_at if call.started_at is not None else 0.0
    return call.failed("cancelled", elapsed_ms=round(max(0.0, ran_s) * 1_000, 3))


def never_entered(call: Call) -> bool:
    """Whether the call's body was certainly never entered: its first attempt still waits for its lock."""
    return call.attempt == 1 and call.worker is None


def lock_missed(call_id: str, tool: str, *, is_read: bool, lock: str = "its lock") -> ToolOutcome:
    """The outcome of a call whose time ended before it got its lock, so that it never started."""
    why = f"{lock} was held by other calls until the time of {tool} ended; it did not start"
    if is_read:
        return ToolFailure(call_id=call_id, tool_name=tool, error=f"{LOCK_MISSED}: {why}", retryable=True)
    return ToolDenied(call_id=call_id, tool_name=tool, reason=DenialReason.DEADLINE, details=why)


def too_late(call_id: str, tool: str) -> ToolDenied:
    """The outcome of a write whose time ended after it was admitted and before its body was entered."""
    details = f"the time of {tool} ended before it could start"
    return ToolDenied(call_id=call_id, tool_name=tool, reason=DenialReason.DEADLINE, details=details)


def not_run(call: Call, why: str) -> ToolDenied:
    """The outcome of a call that never started and never will."""
    return call.denied(DenialReason.NOT_RUN, why)


def is_doubt(call: Call) -> bool:
    """Whether the call is a write that ended without anybody knowing how."""
    return not call.is_read and isinstance(call.outcome, ToolFailure) and call.outcome.in_doubt


def end_with_doubt(call: Call, outcome: ToolOutcome, plan: Iterable[Call], *, now: float) -> tuple[Call, ...]:
    """The call, ended with ``outcome``, and every later call of its message that has not run, ended as ``not_run``.

    That holds for calls that a gate would have refused, too: their turn never came. What a person has denied stays so.
    """
    why = f"{call.tool} ({call.call_id}) ended in doubt"
    waiting = (CallStatus.PLANNED, CallStatus.PENDING)
    rest = [c for c in plan if c.step == call.step and c.position > call.position and c.status in waiting]
    return (end_call(call, outcome, now=now), *(end_call(c, c.answered or not_run(c, why), now=now) for c in rest))
