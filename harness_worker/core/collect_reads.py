"""How a visit judges the reads that were sent, by what the gate knows of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness_worker.core.doubt import not_run, timed_out, worker_lost
from harness_worker.core.lifecycle import end_call
from harness_worker.core.outcomes import ToolOutcome, from_record
from harness_worker.core.reads import ReadState, SettledRead
from harness_worker.core.records import Call, CallStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """One read as the gate knows it.

    Args:
        state: ``None`` if it completed.
        outcome: How it completed.
        started_at: When its attempt was admitted, seconds since the epoch, by the gate's clock.
        finished_at: When it completed, likewise.
        worker: The process that was admitted.
        lease_s: For how many more seconds a live read is presumed alive.
    """

    state: ReadState | None
    outcome: ToolOutcome | None = None
    started_at: float | None = None
    finished_at: float | None = None
    worker: str | None = None
    lease_s: float | None = None

    @classmethod
    def of(cls, settled: SettledRead) -> ReadReport:
        """The gate's answer about a read; the gate stores a completion as text and does not interpret it.

        It is interpreted before the commit that takes it. A completion that cannot be read would fail the commit that
        ends the turn, too; so the turn ends, and the read counts as lost.
        """
        return cls(
            state=settled.state,
            outcome=None if settled.completion is None else from_record(json.loads(settled.completion)),
            started_at=settled.started_at,
            finished_at=settled.finished_at,
            worker=settled.worker,
            lease_s=settled.lease_s,
        )

    @property
    def has_started(self) -> bool:
        """Whether the attempt was ever admitted."""
        return self.started_at is not None or self.state in (ReadState.LIVE, ReadState.LOST)


NO_REPORTS: Final[Mapping[str, ReadReport]] = {}
"""Reports for when the gate was not asked."""

GONE_REPORT: Final = ReadReport(state=ReadState.GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Calls that changed, and open calls that must be sent again."""

    changed: tuple[Call, ...] = ()
    resend: tuple[Call, ...] = ()


def open_reads(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The reads that were sent and have not ended; only the gate knows their outcomes."""
    return tuple(call for call in calls if call.is_read and call.is_open)


def collect_reads(
    calls: Sequence[Call], reports: Mapping[str, ReadReport], *, now: float, attempt_cap: int
) -> Collected:
    """Judge every open read."""
    changed: list[Call] = []
    resend: list[Call] = []
    for call in open_reads(calls):
        judged, again = _judge(call, reports.get(call.call_id, GONE_REPORT), now=now, attempt_cap=attempt_cap)
        if judged is not call:
            changed.append(judged)
        if again:
            resend.append(judged)
    return Collected(changed=tuple(changed), resend=tuple(resend))


def as_run(call: Call, report: ReadReport) -> Call:
    """The read with what the gate knows of its attempt: where it runs, and since when."""
    return replace(call, worker=report.worker, started_at=report.started_at)


def taken(call: Call, report: ReadReport, outcome: ToolOutcome, *, now: float) -> Call:
    """The read with the outcome in the gate's report, which the gate accepted."""
    return end_call(replace(as_run(call, report), finished_at=report.finished_at), outcome, now=now)


def never_begun(call: Call, report: ReadReport, why: str, *, now: float) -> Call:
    """The end of a read whose attempt did not start: ``not_run``, or lost if an earlier attempt was.

    If the gate has forgotten an attempt that was sent, nobody knows whether it started; it counts as lost, too.
    """
    if call.is_open and report.state is ReadState.GONE:
        last = replace(call, worker=None, started_at=None)
    elif call.attempt == 1:
        return end_call(call, not_run(call, why), now=now)
    else:
        last = replace(call, attempt=call.attempt - 1)
    return end_call(last, worker_lost(last), now=now)


def _judge(call: Call, report: ReadReport, *, now: float, attempt_cap: int) -> tuple[Call, bool]:
    if report.outcome is not None:
        return taken(call, report, report.outcome, now=now), False
    if report.state is ReadState.LIVE:
        return call, False
    if report.state is ReadState.UNADMITTED:
        return call, True
    if report.state is ReadState.EXPIRED:
        return _expired(call, report, now=now), False
    was_lost_too_often = call.attempt >= attempt_cap and report.state is not ReadState.GONE
    if was_lost_too_often or (not call.retry_safe and _may_have_run(report)):
        return end_call(as_run(call, report), worker_lost(call), now=now), False
    return replace(as_run(call, report), attempt=call.attempt + 1, status=CallStatus.PENDING), True


def _expired(call: Call, report: ReadReport, *, now: float) -> Call:
    if not report.has_started:
        return never_begun(call, report, "its time ended before it could start", now=now)
    seen = as_run(call, report)
    return end_call(seen, timed_out(seen), now=now)


def _may_have_run(report: ReadReport) -> bool:
    return report.has_started or report.state is ReadState.GONE
