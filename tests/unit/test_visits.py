"""Who drives a turn: claiming, holding and releasing it, and when somebody must look again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.core.budget import BudgetLimits
from harness_worker.core.decisions import Decision
from harness_worker.core.records import Turn
from harness_worker.core.visits import (
    VISIT_SLACK_S,
    Held,
    StopCause,
    Visit,
    claim,
    fenced,
    frees_session,
    holds,
    look_in,
    nudged,
    prolong,
    release,
    stop_cause,
)
from harness_worker.wire import FINAL_STATUSES, QUEUE_LOOK_S, TurnStatus
from tests.unit.builders import (
    DEADLINE,
    NOW,
    OWNER,
    TIMING,
    a_call,
    a_held_turn,
    a_turn,
    a_visit,
    a_write,
    event_types,
    pending,
    running,
    snapshot,
)


def claimed(decision: Decision[Visit | Held | None]) -> Visit:
    """The visit that the decision grants."""
    assert isinstance(decision.result, Visit)
    return decision.result


def test_claim_takes_a_waiting_turn() -> None:
    """A queued turn gets a higher fence, an owner, a lease and its first events, and stays due."""
    decision = claim(snapshot(a_turn(), now=NOW + 1), owner=OWNER, timing=TIMING)
    visit, turn = claimed(decision), decision.turn
    assert turn is not None
    assert (turn.status, turn.fence, turn.owner, turn.started_at) == (TurnStatus.RUNNING, 1, OWNER, NOW + 1)
    assert (turn.lease_until, turn.wake_at) == (NOW + 1 + TIMING.lease_ttl_s, NOW + 1)
    assert (visit.turn, visit.owner, visit.now) == (turn, OWNER, NOW + 1)
    assert event_types(decision) == ["turn.started", "step.started"]


@pytest.mark.parametrize("turn", [a_turn(cancel_requested=True), a_turn(deadline_at=NOW - 1)])
def test_claim_of_a_turn_that_must_stop_starts_nothing(turn: Turn) -> None:
    """It ends without having started, and without a step; taking it over from a lost visit gives that event alone."""
    decision = claim(snapshot(turn), owner=OWNER, timing=TIMING)
    assert claimed(decision).turn.started_at is None
    assert event_types(decision) == []
    lost = replace(turn, owner="lost", lease_until=NOW - 1)
    assert event_types(claim(snapshot(lost), owner=OWNER, timing=TIMING)) == ["turn.redelivered"]


def test_claim_of_a_turn_that_may_ask_no_model_begins_no_step() -> None:
    """It is started, and ends without a step."""
    decision = claim(snapshot(a_turn(budget=BudgetLimits(max_steps=0))), owner=OWNER, timing=TIMING)
    assert claimed(decision).turn.started_at == NOW
    assert event_types(decision) == ["turn.started"]


def test_claim_limits_the_visit_whatever_its_heartbeat_says() -> None:
    """A hung visit ends after its own time, or soon after the turn's deadline, whichever is first."""
    long = claim(snapshot(a_turn(deadline_at=NOW + 500)), owner=OWNER, timing=TIMING).turn
    short = claim(snapshot(a_turn(deadline_at=NOW + 20)), owner=OWNER, timing=TIMING).turn
    over = claim(snapshot(a_turn(deadline_at=NOW - 20)), owner=OWNER, timing=TIMING).turn
    deadlines = [turn.visit_deadline for turn in (long, short, over) if turn is not None]
    assert deadlines == [NOW + TIMING.visit_s, NOW + 20 + VISIT_SLACK_S, NOW + VISIT_SLACK_S]
    patient = replace(TIMING, lease_ttl_s=86_400.0)
    held = claim(snapshot(a_turn(deadline_at=NOW + 20)), owner=OWNER, timing=patient).turn
    assert held is not None
    assert held.lease_until == held.visit_deadline


def test_visit_is_prolonged_for_who_holds_it_up_to_the_turns_end() -> None:
    """It is only ever made longer, and nothing else changes; a visit that lost the turn learns that."""
    held = a_held_turn(visit_deadline=NOW + 30, deadline_at=NOW + 60)
    for visit_s, later in ((40.0, 40.0), (500.0, 60 + VISIT_SLACK_S), (5.0, 30.0)):
        decision = prolong(snapshot(held), turn=held, visit_s=visit_s)
        assert (decision.result, decision.turn) == (True, replace(held, visit_deadline=NOW + later))
    for other in (replace(held, fence=held.fence + 1), a_turn(fence=held.fence)):
        assert prolong(snapshot(other), turn=held, visit_s=40.0) == Decision(result=False)


def test_claim_of_a_held_turn_leaves_word() -> None:
    """A wake-up during a live lease is counted, so that the release cannot lose it; nothing else changes."""
    held = a_held_turn()
    decision = claim(snapshot(held), owner="other", timing=TIMING)
    assert decision.result == Held(stop=False)
    assert decision.turn == replace(held, wakes=1)
    assert decision.events == ()


def test_claim_by_the_holders_own_name_takes_over() -> None:
    """A claim that was made but not answered does not keep its own process out."""
    decision = claim(snapshot(a_held_turn()), owner=OWNER, timing=TIMING)
    assert claimed(decision).turn.fence == 2
    assert event_types(decision) == ["turn.redelivered"]


def test_claim_of_a_held_cancelled_turn_says_stop() -> None:
    """The caller learns that the holder must be told to stop."""
    assert claim(snapshot(a_held_turn(cancel_requested=True)), owner="other", timing=TIMING).result == Held(stop=True)


def test_claim_at_the_very_end_of_a_lease_waits() -> None:
    """A lease is live up to and including its last instant."""
    last = NOW + TIMING.lease_ttl_s
    assert isinstance(claim(snapshot(a_held_turn(), now=last), owner="o", timing=TIMING).result, Held)
    assert isinstance(claim(snapshot(a_held_turn(), now=last + 0.001), owner="o", timing=TIMING).result, Visit)


def test_claim_takes_over_from_the_dead() -> None:
    """A turn whose lease has ended is claimed with a higher fence and an event."""
    decision = claim(snapshot(a_held_turn(step=2), now=NOW + 100), owner="other", timing=TIMING)
    assert claimed(decision).turn.fence == 2
    assert event_types(decision) == ["turn.redelivered"]
    assert decision.events[0].data == {"step": 2}


def test_claim_takes_a_turn_held_without_a_lease() -> None:
    """Without a lease, a turn is free, whatever its owner is."""
    assert isinstance(claim(snapshot(a_held_turn(lease_until=None)), owner="o", timing=TIMING).result, Visit)


def test_claim_of_a_released_turn_tells_nothing() -> None:
    """A later claim gives no event, and the time of the start stays."""
    decision = claim(snapshot(a_turn(started_at=NOW - 5, fence=3)), owner=OWNER, timing=TIMING)
    assert decision.events == ()
    assert claimed(decision).turn.started_at == NOW - 5
    assert claimed(decision).turn.fence == 4


def test_claim_of_a_turn_behind_another_leaves_it_in_the_queue() -> None:
    """While an earlier turn of its session runs it stays queued and free, and is looked at later."""
    waiting = a_turn(waits=True)
    behind = replace(snapshot(waiting, now=NOW + 1), is_behind=True)
    decision = claim(behind, owner=OWNER, timing=TIMING)
    assert decision == Decision(result=None, turn=replace(waiting, wake_at=NOW + 1 + QUEUE_LOOK_S))


def test_claim_of_a_turn_that_has_waited_gives_it_all_its_time() -> None:
    """Waiting for earlier turns does not count: its deadline is counted from now."""
    decision = claim(snapshot(a_turn(waits=True), now=NOW + 500), owner=OWNER, timing=TIMING)
    turn = claimed(decision).turn
    assert (turn.waits, turn.deadline_at, turn.visit_deadline) == (False, NOW + 560, NOW + 500 + TIMING.visit_s)
    again = replace(turn, owner=None, lease_until=None)
    assert claimed(claim(snapshot(again, now=NOW + 510), owner=OWNER, timing=TIMING)).turn.deadline_at == NOW + 560


def test_claim_of_a_cancelled_turn_overtakes() -> None:
    """A cancelled turn does not wait for earlier ones."""
    cancelled = replace(snapshot(a_turn(waits=True, cancel_requested=True)), is_behind=True)
    assert claimed(claim(cancelled, owner=OWNER, timing=TIMING)).stop is StopCause.CANCELLED


def test_end_frees_the_session_of_a_followed_turn_once() -> None:
    """Only the change that ends the turn does, and only if another turn waits for it."""
    held, over = a_held_turn(followed=True), a_turn(followed=True, status=TurnStatus.FAILED)
    assert frees_session(held, over)
    assert not frees_session(over, over)
    assert not frees_session(held, held)
    assert not frees_session(held, None)
    assert not frees_session(replace(held, followed=False), over)


@pytest.mark.parametrize("status", sorted(FINAL_STATUSES))
def test_claim_of_a_finished_turn_changes_nothing(status: TurnStatus) -> None:
    """A finished turn cannot be claimed."""
    assert claim(snapshot(a_turn(status=status)), owner=OWNER, timing=TIMING) == Decision(result=None)


def test_stop_cause_is_a_cancel_or_the_deadline() -> None:
    """A turn must end when it was cancelled, or strictly after its deadline; a cancel goes first."""
    assert stop_cause(a_turn(), DEADLINE) is None
    assert stop_cause(a_turn(), DEADLINE + 0.001) is StopCause.DEADLINE
    assert stop_cause(a_turn(cancel_requested=True), DEADLINE + 1) is StopCause.CANCELLED
    assert a_visit(a_held_turn(cancel_requested=True)).stop is StopCause.CANCELLED


def test_visit_holds_only_what_it_claimed() -> None:
    """A higher fence, another owner, its own release and an end each make a visit a zombie."""
    held = a_held_turn()
    visit = a_visit(held)
    assert holds(visit, snapshot(held))
    for lost in ({"fence": 2}, {"owner": None}, {"owner": "other"}, {"status": TurnStatus.CANCELLED}):
        assert not holds(visit, snapshot(replace(held, **lost)))


def test_zombie_changes_nothing() -> None:
    """A coordinator that lost the turn meanwhile commits nothing, whatever it decides."""
    held = a_held_turn()
    rule = fenced(a_visit(held), lambda now: Decision(result="mine", turn=now.turn))
    assert rule(snapshot(held)) == Decision(result="mine", turn=held)
    assert rule(snapshot(replace(held, fence=2, owner="other"))) == Decision(result=None)


def test_visit_keeps_what_heartbeats_and_cancels_touch() -> None:
    """A heartbeat, the reconciler or a cancel does not cost a visit its hold."""
    held = a_held_turn()
    touched = replace(held, lease_until=NOW + 50, wake_at=NOW + 5, wakes=3, cancel_requested=True)
    assert holds(a_visit(held), snapshot(touched))


def test_release_lets_go() -> None:
    """Nobody holds the turn, and it is due at the time that was asked for."""
    held = a_held_turn()
    free = release(a_visit(held), held, wake_at=NOW + 9, now=NOW)
    assert (free.owner, free.lease_until, free.visit_deadline) == (None, None, None)
    assert (free.wake_at, free.fence) == (NOW + 9, 1)


def test_release_cannot_lose_a_nudge() -> None:
    """A chord's end that met the live lease is looked after at once, not at the next look-in."""
    held = a_held_turn()
    visit, told = a_visit(held), replace(held, wakes=1)
    assert nudged(visit, told)
    assert not nudged(visit, held)
    assert release(visit, told, wake_at=NOW + 9, now=NOW + 1).wake_at == NOW + 1


def test_look_in_grows_once() -> None:
    """The first look is soon, and later ones half as often, so never only at the deadline."""
    assert look_in(a_turn(), (), now=NOW, timing=TIMING) == NOW + TIMING.look_s
    assert look_in(a_turn(looks=1), (), now=NOW, timing=TIMING) == NOW + 2 * TIMING.look_s
    assert look_in(a_turn(looks=7), (), now=NOW, timing=TIMING) == NOW + 2 * TIMING.look_s


def test_look_in_is_no_later_than_what_may_end() -> None:
    """The turn's deadline, a call's deadline with its grace, and a running call's lease each bring it forward."""
    soon = a_turn(deadline_at=NOW + 1)
    assert look_in(soon, (), now=NOW, timing=TIMING) == NOW + 1
    leased = running(a_write(), lease_until=NOW + 0.5)
    assert look_in(a_turn(), (leased,), now=NOW, timing=TIMING) == NOW + 0.5
    late_at = NOW + 0.25 - TIMING.hard_s - TIMING.grace_s
    late = running(a_write(), lease_until=None, deadline_at=late_at)
    assert look_in(a_turn(), (late,), now=NOW, timing=TIMING) == NOW + 0.25
    waits = (pending(a_call(), deadline_at=None), a_call(1, deadline_at=late_at), pending(a_call(2), lease_until=NOW))
    assert look_in(a_turn(), waits, now=NOW, timing=TIMING) == NOW + TIMING.look_s


def test_look_in_waits_for_the_lease_of_a_write_whose_grace_is_over() -> None:
    """Its process still lives, so that nothing about it can be decided before."""
    overdue = running(a_write(), lease_until=NOW + 0.5, deadline_at=NOW - TIMING.hard_s - TIMING.grace_s)
    assert look_in(a_turn(), (overdue,), now=NOW, timing=TIMING) == NOW + 0.5


def test_look_in_is_no_later_than_the_end_of_a_reads_lease() -> None:
    """A read whose worker died is found when its lease ends, not at a later look-in."""
    assert look_in(a_turn(looks=3), (), now=NOW, timing=TIMING, lives_s=(5.5, 1.5)) == NOW + 1.5
    assert look_in(a_turn(looks=3), (), now=NOW, timing=TIMING, lives_s=(5.5,)) == NOW + 2 * TIMING.look_s


def test_look_in_is_never_in_the_past() -> None:
    """What is overdue is looked at now."""
    assert look_in(a_turn(deadline_at=NOW - 5), (), now=NOW, timing=TIMING) == NOW
