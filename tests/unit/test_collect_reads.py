"""How a visit judges a read by the gate's report of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.collect_reads import Collected, ReadReport, collect_reads
from harness_worker.core.outcomes import ToolFailure, ToolTimeout, content_of, elapsed_ms_of
from harness_worker.core.reads import ReadState
from harness_worker.core.records import Call, CallStatus
from tests.unit.builders import DEADLINE, NOW, a_call, a_write, ended, ok, pending

CAP = 3
SENT = pending(a_call())


def judged(call: Call, report: ReadReport | None) -> Collected:
    """What becomes of one read."""
    reports = {} if report is None else {call.call_id: report}
    return collect_reads((call,), reports, now=NOW + 5, attempt_cap=CAP)


def test_accepted_outcome_is_taken_with_its_times() -> None:
    """Outcome, times and worker are those of the attempt that the gate accepted."""
    report = ReadReport(state=None, outcome=ok(SENT), started_at=NOW + 1, finished_at=NOW + 2, worker="w/7")
    collected = judged(SENT, report)
    (call,) = collected.changed
    assert (call.status, call.outcome, call.worker) == (CallStatus.ENDED, ok(SENT), "w/7")
    assert (call.started_at, call.finished_at) == (NOW + 1, NOW + 2)
    assert collected.resend == ()


def test_live_read_is_waited_for() -> None:
    """A running read with heartbeats is left alone, however often it is looked at."""
    assert judged(SENT, ReadReport(state=ReadState.LIVE, started_at=NOW)) == Collected()


def test_read_that_never_started_is_sent_again_as_it_is() -> None:
    """A lost message costs no attempt."""
    collected = judged(SENT, ReadReport(state=ReadState.UNADMITTED))
    assert collected.changed == ()
    assert collected.resend == (SENT,)


def test_read_past_its_deadline_is_a_timeout() -> None:
    """The timeout names the tool's own limit."""
    (call,) = judged(SENT, ReadReport(state=ReadState.EXPIRED, started_at=NOW, worker="w/7")).changed
    assert isinstance(call.outcome, ToolTimeout)
    assert content_of(call.outcome) == "timeout: tool0 did not finish within 10 s"
    assert (call.started_at, call.finished_at, call.worker) == (NOW, NOW + 5, "w/7")


def test_read_past_its_deadline_that_never_began_is_no_timeout() -> None:
    """It was not run; or if an earlier attempt was lost, that is its outcome."""
    (first,) = judged(SENT, ReadReport(state=ReadState.EXPIRED)).changed
    assert first.outcome is not None
    assert content_of(first.outcome) == "denied: not_run: its time ended before it could start"
    (lost,) = judged(SENT, ReadReport(state=ReadState.LOST, started_at=NOW + 1, worker="w/7")).changed
    (second,) = judged(lost, ReadReport(state=ReadState.EXPIRED)).changed
    assert second.outcome is not None
    assert content_of(second.outcome) == "worker_lost: the process running tool0 was lost once"
    assert (second.attempt, second.started_at, second.worker) == (1, NOW + 1, "w/7")


def test_read_cut_by_its_turns_end_tells_the_time_it_had() -> None:
    """It started with less of the turn's time left than its tool may take."""
    (call,) = judged(SENT, ReadReport(state=ReadState.EXPIRED, started_at=DEADLINE - 4, worker="w/7")).changed
    assert call.outcome is not None
    assert content_of(call.outcome) == "timeout: tool0 did not finish within 4 s"
    assert elapsed_ms_of(call.outcome) == 4_000


@pytest.mark.parametrize("state", [ReadState.GONE, ReadState.LOST, ReadState.CLOSED, None])
def test_read_that_is_lost_runs_again(state: ReadState | None) -> None:
    """After its process died, or the gate was flushed or closed early, it runs as another attempt."""
    collected = judged(SENT, None if state is None else ReadReport(state=state))
    assert [(call.attempt, call.status) for call in collected.changed] == [(2, CallStatus.PENDING)]
    assert collected.resend == collected.changed


def test_read_that_is_lost_too_often_is_given_up() -> None:
    """After the last attempt allowed, it is not run again."""
    collected = judged(pending(a_call(attempt=CAP)), ReadReport(state=ReadState.LOST))
    (call,) = collected.changed
    assert isinstance(call.outcome, ToolFailure)
    assert call.outcome.error == "worker_lost: the process running tool0 was lost 3 times"
    assert (call.attempt, collected.resend) == (CAP, ())


def test_read_that_the_gate_forgot_is_never_given_up_for_that() -> None:
    """However often Redis loses everything, no process was lost: a read may wait through all of it in its queue."""
    (call,) = judged(pending(a_call(attempt=CAP)), ReadReport(state=ReadState.GONE)).resend
    assert (call.attempt, call.status) == (CAP + 1, CallStatus.PENDING)


def test_read_that_must_not_run_twice_is_not_run_again() -> None:
    """That is once it has, or may have, started; a lost message is sent again as for any read."""
    once = replace(SENT, retry_safe=False)
    for state in (ReadState.GONE, ReadState.LOST):
        (call,) = judged(once, ReadReport(state=state)).changed
        assert isinstance(call.outcome, ToolFailure)
        assert content_of(call.outcome) == "worker_lost: the process running tool0 was lost once"
    assert judged(once, ReadReport(state=ReadState.UNADMITTED)).resend == (once,)
    assert [call.attempt for call in judged(once, ReadReport(state=ReadState.CLOSED)).resend] == [2]


def test_only_open_reads_are_judged() -> None:
    """Writes, planned reads and ended reads are left alone."""
    calls = (a_call(0), ended(a_call(1)), pending(a_write(2)))
    assert collect_reads(calls, {}, now=NOW, attempt_cap=CAP) == Collected()


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (ReadReport(state=ReadState.UNADMITTED), False),
        (ReadReport(state=ReadState.GONE), False),
        (ReadReport(state=ReadState.LIVE), True),
        (ReadReport(state=ReadState.LOST), True),
        (ReadReport(state=ReadState.EXPIRED, started_at=NOW), True),
    ],
)
def test_read_has_started_if_it_was_ever_admitted(report: ReadReport, expected: bool) -> None:
    """An admitted read may have run."""
    assert report.has_started is expected
