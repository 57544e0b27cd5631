"""The commit that collects what ran since the last visit (docs/architecture.md, "A turn, step by step")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness_worker.core.approvals import Edit, resolve
from harness_worker.core.children import all_parked, take_ended_children
from harness_worker.core.collect_reads import NO_REPORTS, ReadReport, collect_reads
from harness_worker.core.collect_writes import collect_writes
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.lifecycle import changed_from, decide, merge, preceded_by
from harness_worker.core.parked_below import notice
from harness_worker.core.progress import Dispatch, Next, go_on, stop_turn
from harness_worker.core.records import Call, Turn
from harness_worker.core.resending import send_again
from harness_worker.core.visits import Visit, look_in, nudged, release, stop_cause

NO_EDITS: Mapping[str, Edit] = {}


def collect(
    snapshot: Snapshot,
    *,
    visit: Visit,
    reports: Mapping[str, ReadReport] = NO_REPORTS,
    edits: Mapping[str, Edit] = NO_EDITS,
) -> Decision[Next]:
    """Take what has ended, run again what was lost, wait for what is alive; if nothing is open, go on.

    Args:
        snapshot: The turn and its calls, under the lock.
        visit: The hold on the turn.
        reports: What the gate knows of the open reads, by call id.
        edits: The arguments of calls that people edited, checked, by call id.
    """
    turn, now = snapshot.turn, snapshot.now
    cause = visit.stop or (None if _is_open(snapshot.calls) else stop_cause(turn, now))
    if cause is not None:
        return stop_turn(snapshot, turn, snapshot.calls, cause, reports)
    answered = resolve(snapshot.calls, edits, now=now)
    calls = merge(snapshot.calls, answered.calls)
    return preceded_by(answered.events, _collect(snapshot, visit, calls, reports))


def _collect(
    snapshot: Snapshot, visit: Visit, calls: tuple[Call, ...], reports: Mapping[str, ReadReport]
) -> Decision[Next]:
    now, timing = snapshot.now, visit.timing
    settled = notice(snapshot, take_ended_children(snapshot, snapshot.turn, calls))
    turn, calls, events = settled.turn, settled.calls, settled.events
    reads = collect_reads(calls, reports, now=now, attempt_cap=timing.attempt_cap)
    calls = merge(calls, reads.changed)
    writes = collect_writes(calls, turn_deadline_at=turn.deadline_at, now=now, timing=timing)
    calls = merge(calls, writes.changed)
    if not _is_open(calls):
        return preceded_by(events, go_on(snapshot, visit, turn, calls))
    resend = send_again(snapshot, reads.resend + writes.resend, timing=timing)
    parked_at = now if all_parked(calls, snapshot.children) else None
    looked = replace(turn, looks=resend.looks, parked_at=parked_at)
    lives_s = [report.lease_s for report in reports.values() if report.lease_s is not None]
    wake_at = look_in(looked, calls, now=now, timing=timing, lives_s=lives_s, children=snapshot.children)
    released = release(visit, looked, wake_at=wake_at, now=now)
    return preceded_by(events, _wait(snapshot, visit, released, calls, resend.calls))


def _is_open(calls: Sequence[Call]) -> bool:
    return any(call.is_open for call in calls)


def _wait(
    snapshot: Snapshot, visit: Visit, released: Turn, calls: tuple[Call, ...], resend: tuple[Call, ...]
) -> Decision[Next]:
    remaining_s = released.deadline_at - snapshot.now
    result = Dispatch(turn=released, calls=resend, nudge=nudged(visit, snapshot.turn), remaining_s=remaining_s)
    return decide(snapshot, result, turn=released, calls=changed_from(snapshot, calls))
