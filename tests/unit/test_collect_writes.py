"""How a visit judges the sequential calls that were sent, by what the journal knows of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.collect_reads import Collected
from harness_worker.core.collect_writes import collect_writes, lost_write
from harness_worker.core.outcomes import content_of
from harness_worker.core.records import Call, CallStatus
from tests.unit.builders import DEADLINE, NOW, TIMING, a_call, a_write, ended, pending, running

LATE_S = TIMING.hard_s + TIMING.grace_s


def judged(*calls: Call, now: float = NOW) -> Collected:
    """What becomes of a chain of calls."""
    return collect_writes(calls, turn_deadline_at=DEADLINE, now=now, timing=TIMING)


def said(collected: Collected) -> list[str]:
    """The contents of the calls that ended."""
    return [content_of(call.outcome) for call in collected.changed if call.outcome is not None]


def test_running_write_is_waited_for() -> None:
    """With a live lease, or without one, it is left alone, and no call after it is sent again."""
    assert judged(running(a_write(0)), pending(a_write(1))) == Collected()
    assert judged(running(a_write(0), lease_until=None)) == Collected()


def test_waiting_chain_is_sent_again_from_here() -> None:
    """If the first open call waits, its message may be lost: the chain is sent again, as the same attempts."""
    rest = (pending(a_write(1)), pending(a_write(2)))
    assert judged(ended(a_write(0)), *rest) == Collected(resend=rest)


def test_lost_write_that_may_runs_again() -> None:
    """A ``retry_safe`` write whose process died runs as the next attempt, with the turn's whole time."""
    call = running(a_write(retry_safe=True), lease_until=NOW)
    collected = judged(call, pending(a_write(1)), now=NOW)
    assert [(c.attempt, c.status, c.deadline_at) for c in collected.changed] == [(2, CallStatus.PENDING, DEADLINE)]
    assert [(c.position, c.attempt) for c in collected.resend] == [(0, 2), (1, 1)]
    assert (collected.changed[0].lease_until, collected.changed[0].runner) == (None, None)


def test_lost_write_that_may_not_is_in_doubt() -> None:
    """It never runs twice, and later calls of the plan do not run."""
    collected = judged(running(a_write(0), lease_until=NOW), pending(a_write(1)), now=NOW)
    assert said(collected) == [
        "outcome_unknown: tool0 started and its process was lost; its effect may or may not have happened",
        "denied: not_run: tool0 (0.0) ended in doubt",
    ]
    assert collected.resend == ()


def test_write_lost_too_often_is_given_up() -> None:
    """After the last attempt allowed, even a ``retry_safe`` write ends as lost, in doubt."""
    call = running(a_write(retry_safe=True, attempt=TIMING.attempt_cap), lease_until=NOW)
    (content, _) = said(judged(call, pending(a_write(1)), now=NOW))
    assert content.startswith("worker_lost: the process running tool0 was lost 3 times")


def test_write_past_its_deadline_is_in_doubt_never_a_timeout() -> None:
    """A timeout would say that nothing happened, and the next write would start beside it."""
    for safe in (False, True):
        call = running(a_write(0, retry_safe=safe), lease_until=NOW + 100)
        within, over = call.deadline_at or 0.0, (call.deadline_at or 0.0) + LATE_S
        assert judged(call, now=within) == Collected()
        assert judged(call, now=over) == Collected()
        collected = judged(call, pending(a_write(1)), now=over + 0.001)
        assert [content.split(":")[0] for content in said(collected)] == ["outcome_unknown", "denied"]


@pytest.mark.parametrize("lease_until", [NOW + 10 + TIMING.lease_ttl_s, -(NOW + 10)], ids=["silent", "dead"])
def test_write_that_was_lost_in_time_is_judged_alike_whenever_that_is_found(lease_until: float) -> None:
    """It was never seen alive after its deadline, so it runs again, even if the whole fleet was down since."""
    may = running(a_write(retry_safe=True), lease_until=lease_until)
    assert may.deadline_at == NOW + 10
    for found_at in (NOW + 10 + TIMING.lease_ttl_s, NOW + 50):
        (again,) = judged(may, now=found_at).resend
        assert (again.attempt, again.deadline_at) == (2, DEADLINE)
        (content,) = said(judged(replace(may, retry_safe=False), now=found_at))
        assert content.startswith("outcome_unknown: tool0 started and its process was lost")


def test_write_of_a_silent_process_is_waited_for_until_its_lease_is_over() -> None:
    """Even if its own deadline has passed, it may have died in time, and a ``retry_safe`` write then runs again."""
    call = running(a_write(retry_safe=True), deadline_at=NOW + 0.5)
    assert judged(call, now=NOW + TIMING.lease_ttl_s - 0.001) == Collected()
    assert [again.attempt for again in judged(call, now=NOW + TIMING.lease_ttl_s).resend] == [2]


def test_write_seen_alive_after_its_deadline_is_not_run_again() -> None:
    """It had its whole time, and nobody knows its effect."""
    call = running(a_write(retry_safe=True), lease_until=NOW + 10 + TIMING.lease_ttl_s + 0.001)
    assert call.deadline_at == NOW + 10
    assert judged(call, now=NOW + 10 + LATE_S) == Collected()
    for found_at in (NOW + 10 + LATE_S + 0.001, NOW + 50):  # while its lease lasts, and long after
        (content,) = said(judged(call, now=found_at))
        assert content.startswith("outcome_unknown: tool0 started and did not end in time")


def test_write_whose_process_was_ended_at_its_hard_limit_is_in_doubt_at_once() -> None:
    """Its worker reports a death after the deadline, so the lease need not be waited for."""
    (content,) = said(judged(running(a_write(retry_safe=True), lease_until=-(NOW + 11.5)), now=NOW + 11.6))
    assert content.startswith("outcome_unknown: tool0 started and did not end in time")


def test_waiting_write_past_the_deadline_is_not_run() -> None:
    """It certainly never started, nor did later ones; nothing is in doubt. Nothing is sent again, so nothing loops."""
    collected = judged(pending(a_write(0)), pending(a_write(1)), now=DEADLINE + 0.001)
    assert said(collected) == ["denied: not_run: its time ended before it could start"] * 2
    assert collected.resend == ()


def test_waiting_write_that_ran_before_is_in_doubt() -> None:
    """An earlier attempt may have had its effect, so ``not_run`` would be false."""
    (content,) = said(judged(pending(a_write(attempt=2, retry_safe=True)), now=DEADLINE + 1))
    assert content.startswith("outcome_unknown: tool0 started and was lost before it could run again")


def test_call_without_a_deadline_has_the_turns() -> None:
    """The row is from before its dispatch was complete."""
    assert judged(pending(a_write(deadline_at=None), deadline_at=None), now=DEADLINE).changed == ()
    assert len(judged(pending(a_write(), deadline_at=None), now=DEADLINE + 1).changed) == 1


@pytest.mark.parametrize("call", [a_call(), pending(a_call()), a_write(), ended(a_write())])
def test_only_open_sequential_calls_are_judged(call: Call) -> None:
    """Reads are the gate's to decide; planned and ended calls need no judgement."""
    assert judged(call, now=NOW + 1_000) == Collected()


def test_lost_write_touches_nothing_else_of_the_plan() -> None:
    """Only the call that runs again changes."""
    call = running(a_write(retry_safe=True))
    assert [c.position for c in lost_write(call, (call, pending(a_write(1))), now=NOW, timing=TIMING)] == [0]
