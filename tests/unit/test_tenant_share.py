"""A tenant's share: so many of its turns run at a time, the others wait, and nobody is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.visits import Visit, claim
from harness_worker.wire import QUEUE_LOOK_S, TurnStatus
from tests.unit.builders import NOW, OWNER, TIMING, a_held_turn, a_turn, asked, parked
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks

OTHERS = ("second", "third", "fourth")


def crowded(**changes: Any) -> Decision[None]:  # noqa: ANN401 - any field's value
    """What becomes of the claim of a turn whose tenant has its share."""
    snapshot = Snapshot(now=NOW, turn=a_turn(**changes), calls=(), is_crowded=True)
    return claim(snapshot, owner=OWNER, timing=TIMING).with_result(None)


def engine_of_one() -> Engine:
    """An engine where one turn of a tenant may run at a time, with four of one and one of another in the queue."""
    engine = Engine()
    engine.store.tenant_turns = 1
    for name in OTHERS:
        engine.clock.now_s += 0.001
        engine.store.insert_turn(a_turn(id=name, session_id=name))
    engine.store.insert_turn(a_turn(id="quiet", session_id="quiet", tenant="quiet"))
    return engine


def statuses(engine: Engine, *names: str) -> list[TurnStatus]:
    """How these turns stand."""
    return [engine.store.turns[name].status for name in names]


def test_turn_of_a_crowded_tenant_stays_in_the_queue() -> None:
    """Nobody holds it, no time is counted against it, and it is looked at though nobody should wake it."""
    turn = crowded().turn
    assert turn is not None
    assert (turn.status, turn.waits, turn.fence, turn.owner) == (TurnStatus.QUEUED, True, 0, None)
    assert turn.wake_at == NOW + QUEUE_LOOK_S


def test_cancelled_turn_does_not_wait_for_its_tenant() -> None:
    """Its end takes nothing from anybody."""
    turn = crowded(cancel_requested=True).turn
    assert turn is not None
    assert turn.owner == OWNER


@pytest.mark.parametrize("status", [TurnStatus.RUNNING, TurnStatus.REQUIRES_ACTION])
def test_turn_that_has_begun_is_not_held_up(status: TurnStatus) -> None:
    """Only who has not begun waits: a turn under way holds what others wait for."""
    begun = a_held_turn(status=status, owner=None, lease_until=None)
    snapshot = Snapshot(now=NOW, turn=begun, calls=(), is_crowded=True)
    assert isinstance(claim(snapshot, owner=OWNER, timing=TIMING).result, Visit)


def test_noisy_tenant_waits_for_itself_and_a_quiet_one_does_not() -> None:
    """While one turn of the noisy tenant runs its others are left, and the quiet one's is driven."""
    engine = engine_of_one()
    engine.dispatched("look")
    engine.coordinator.advance("second")
    engine.says(answers("done"))
    engine.coordinator.advance("quiet")
    assert statuses(engine, TURN_ID, "second", "quiet") == ["running", "queued", "completed"]
    assert engine.sent.advanced == []


def test_end_of_a_turn_wakes_the_oldest_of_its_tenant() -> None:
    """Two of those that have waited, oldest first, as ones that begin; the first of them has all its time."""
    engine = engine_of_one()
    engine.dispatched("look")
    for name in OTHERS:
        engine.coordinator.advance(name)
    engine.run()
    engine.clock.now_s += 20.0
    engine.says(answers("done"), asks("look"))
    engine.advance()
    assert engine.sent.advanced == [("second", "interactive"), ("third", "interactive")]
    assert engine.sent.begun == ["second", "third"]
    for name in OTHERS:
        engine.coordinator.advance(name)
    assert statuses(engine, TURN_ID, *OTHERS) == ["completed", "running", "queued", "queued"]
    second = engine.store.turns["second"]
    assert second.deadline_at == engine.clock.now_s + second.budget.timeout_s


def test_turn_that_waits_for_a_person_makes_room() -> None:
    """It holds no worker, so it holds no place."""
    engine = Engine(ask_first=None)
    engine.store.tenant_turns = 1
    engine.store.insert_turn(a_turn(id="second", session_id="second"))
    engine.store.turns["second"] = replace(engine.store.turns["second"], waits=True)
    engine.dispatched("ask_first")
    assert statuses(engine, TURN_ID) == ["requires_action"]
    assert engine.sent.advanced == [("second", "interactive")]


def test_turn_all_of_whose_children_wait_for_people_makes_room() -> None:
    """It holds no place either, for as long as they wait."""
    engine = Engine()
    engine.store.tenant_turns = 1
    engine.store.insert_turn(a_turn(id="second", session_id="second"))
    engine.store.turns["second"] = replace(engine.store.turns["second"], waits=True)
    child = parked()
    running = replace(engine.store.turns[TURN_ID], status=TurnStatus.RUNNING, step=1, wake_at=engine.clock.now_s)
    asks_it = Decision(result=None, turn=running, calls=(asked(),), children=(child,))
    engine.store.transact(TURN_ID, lambda _: asks_it)
    engine.advance()
    assert engine.store.turns[TURN_ID].parked_at is not None
    assert engine.sent.advanced == [("second", "interactive")]
    engine.says(answers("done"))
    engine.coordinator.advance("second")
    assert statuses(engine, TURN_ID, "second") == ["running", "completed"]


def test_turn_that_is_never_woken_is_found() -> None:
    """The wake-up was lost: the reconciler looks after half a minute."""
    engine = engine_of_one()
    engine.dispatched("look")
    engine.coordinator.advance("second")
    engine.clock.now_s += QUEUE_LOOK_S
    assert "second" in [turn_id for turn_id, *_ in engine.store.overdue(10, 5.0)]
