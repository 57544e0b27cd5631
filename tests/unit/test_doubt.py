"""What is said of calls whose end nobody saw, and of those that never started because of them."""

from __future__ import annotations

import pytest

from harness_worker.core.doubt import end_with_doubt, is_doubt, not_run, timed_out, unknown, worker_lost
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome, content_of, from_record, to_record
from harness_worker.core.records import Approval, CallStatus
from tests.unit.builders import NOW, a_call, a_write, ended, failed, ok, pending, running


def test_unknown_write_is_said_to_be_unknown() -> None:
    """Never a timeout: the effect may have happened."""
    outcome = unknown(a_write(), "its process was lost")
    assert content_of(outcome) == (
        "outcome_unknown: tool0 started and its process was lost; its effect may or may not have happened"
    )


def test_lost_call_says_how_often() -> None:
    """Only a write leaves a doubt about its effect."""
    assert content_of(worker_lost(a_call(attempt=3))) == "worker_lost: the process running tool0 was lost 3 times"
    assert content_of(worker_lost(a_write(attempt=3))).endswith("its effect may or may not have happened")


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (unknown(a_write(), "x"), True),
        (worker_lost(a_write()), True),
        (failed(a_write()), False),
        (failed(a_write(), "outcome_unknown: said by the tool itself"), False),
        (failed(a_write(), "worker_lost: said by the tool itself"), False),
        (ok(a_write(), "outcome_unknown: said by the tool"), False),
        (not_run(a_write(), "x"), False),
        (timed_out(a_write()), False),
        (None, False),
    ],
)
def test_doubt_is_a_writes_unknown_end(outcome: ToolOutcome | None, expected: bool) -> None:
    """A failure, a denial and an output that reads like a doubt are none."""
    call = a_write() if outcome is None else ended(a_write(), outcome)
    assert is_doubt(call) is expected


@pytest.mark.parametrize(("error", "expected"), [("outcome_unknown: x", True), ("worker_lost: x", True), ("x", False)])
def test_doubt_of_an_old_record_is_told_by_its_words(error: str, expected: bool) -> None:
    """Rows written before the flag was there mean what they meant then; a read was in no doubt."""
    record = to_record(failed(a_write(), error))
    assert not is_doubt(ended(a_write(), from_record(record)))
    del record["in_doubt"]
    assert is_doubt(ended(a_write(), from_record(record))) is expected
    assert not is_doubt(ended(a_call(), from_record(record)))


def test_doubt_does_not_concern_reads() -> None:
    """A lost read had no effect."""
    assert not is_doubt(ended(a_call(), worker_lost(a_call())))


def test_doubt_ends_the_rest_of_the_plan() -> None:
    """Every later call of the message that has not run is not run; reads and invalid calls included; others stay."""
    doubtful = running(a_write(1))
    invalid = ToolDenied(call_id="0.4", tool_name="tool4", reason=DenialReason.VALIDATION, details="bad")
    plan = (
        pending(a_write(0)),
        doubtful,
        pending(a_write(2)),
        a_call(3, wave=3),
        a_call(4, wave=4, outcome=invalid),
        running(a_write(5)),
        a_write(6, step=1),
    )
    changed = end_with_doubt(doubtful, unknown(doubtful, "x"), plan, now=NOW)
    assert [call.position for call in changed] == [1, 2, 3, 4]
    assert all(call.status is CallStatus.ENDED for call in changed)
    contents = [content_of(call.outcome) for call in changed if call.outcome is not None]
    assert contents[1:] == ["denied: not_run: tool1 (0.1) ended in doubt"] * 3


def test_doubt_leaves_a_persons_denial() -> None:
    """What a person was told about their answer stays true."""
    doubtful = running(a_write(0))
    said = ToolDenied(call_id="0.1", tool_name="tool1", reason=DenialReason.APPROVAL, details="no")
    answered = a_call(1, wave=1, outcome=said, approval=Approval(decision="deny", is_resolved=True))
    changed = end_with_doubt(doubtful, unknown(doubtful, "x"), (doubtful, answered), now=NOW)
    assert changed[1].outcome == said
