"""How a visit judges the sequential calls that were sent; SQL alone decides their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness_worker.core.collect_reads import Collected
from harness_worker.core.doubt import end_with_doubt, lock_missed, never_entered, not_run, unknown, worker_lost
from harness_worker.core.lifecycle import end_call, merge, unstart
from harness_worker.core.records import Call, CallStatus
from harness_worker.core.timing import Timing


def collect_writes(calls: Sequence[Call], *, turn_deadline_at: float, now: float, timing: Timing) -> Collected:
    """Judge every open sequential call, in program order, and say which calls must be sent again as a chain."""
    current = tuple(calls)
    changed: dict[str, Call] = {}
    for position in range(len(current)):
        call = current[position]
        if call.runs_beside or not call.is_open:
            continue
        after = _judge(call, current, turn_deadline_at=turn_deadline_at, now=now, timing=timing)
        changed.update({each.call_id: each for each in after})
        current = merge(current, after)
    open_now = tuple(call for call in current if not call.runs_beside and call.is_open)
    first_waits = bool(open_now) and open_now[0].status is CallStatus.PENDING
    return Collected(changed=tuple(changed.values()), resend=open_now if first_waits else ())


def lost_write(call: Call, plan: Sequence[Call], *, now: float, timing: Timing) -> tuple[Call, ...]:
    """A running write whose process was lost: it runs again if it is ``retry_safe``, else it ends in doubt.

    If it was still waiting for its lock, its body was never entered; it is sent again as the same attempt.
    """
    if call.worker is None:
        return (unstart(call),)
    if not call.retry_safe:
        return end_with_doubt(call, unknown(call, "its process was lost"), plan, now=now)
    if call.attempt >= timing.attempt_cap:
        return end_with_doubt(call, worker_lost(call), plan, now=now)
    return (replace(unstart(call), attempt=call.attempt + 1),)


def _judge(
    call: Call, plan: Sequence[Call], *, turn_deadline_at: float, now: float, timing: Timing
) -> tuple[Call, ...]:
    deadline_at = call.deadline_at if call.deadline_at is not None else turn_deadline_at
    if call.status is CallStatus.PENDING:
        return _judge_pending(call, plan, over=now > deadline_at, now=now)
    is_over = call.lease_until is not None and call.lease_until <= now
    had_its_time = _last_seen_at(call, now=now, timing=timing) > deadline_at
    if is_over and not had_its_time:
        lost = lost_write(call, plan, now=now, timing=timing)
        return tuple(replace(c, deadline_at=turn_deadline_at) if c.status is CallStatus.PENDING else c for c in lost)
    if had_its_time and (is_over or now > deadline_at + timing.hard_s + timing.grace_s):
        if never_entered(call):
            return (end_call(call, lock_missed(call.call_id, call.tool, is_read=False), now=now),)
        return end_with_doubt(call, unknown(call, "did not end in time"), plan, now=now)
    return ()


def _last_seen_at(call: Call, *, now: float, timing: Timing) -> float:
    """When a running call's process was last known to be alive; only if that is after its deadline did it overrun."""
    if call.lease_until is None:
        return now
    return -call.lease_until if call.lease_until < 0 else call.lease_until - timing.lease_ttl_s


def _judge_pending(call: Call, plan: Sequence[Call], *, over: bool, now: float) -> tuple[Call, ...]:
    if not over:
        return ()
    if call.attempt > 1:
        return end_with_doubt(call, unknown(call, "was lost before it could run again"), plan, now=now)
    return (end_call(call, not_run(call, "its time ended before it could start"), now=now),)
