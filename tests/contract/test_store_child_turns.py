"""Turns that answer calls of other turns, in the store: one suite, on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.delegating import children_of
from harness_worker.core.records import Call, CallStatus, Park, Turn
from harness_worker.core.registration.delegation import Delegation
from harness_worker.schema import sessions, turns
from harness_worker.wire import TurnStatus, child_turn_id
from tests.contract.store_world import World, in_threads, is_crowded, new_call

HELPER = Delegation(agent="helper", budget=BudgetLimits(timeout_s=20.0, max_tokens=500))
OVER = {"status": TurnStatus.COMPLETED, "wake_at": None}


def asking(turn_id: str, position: int = 0) -> Call:
    """A call of the agent "helper" that was sent."""
    arguments = {"input": f"question {position}"}
    return new_call(turn_id, position, tool="helper", arguments=arguments, delegation=HELPER, status=CallStatus.RUNNING)


def ask(world: World, turn_id: str, *, calls: int = 1) -> list[str]:
    """Have the turn ask the helper ``calls`` times, and return the ids of the turns that this creates."""

    def rule(snapshot: Snapshot) -> Decision[list[str]]:
        asked = tuple(asking(turn_id, position) for position in range(calls))
        children = children_of(snapshot.turn, asked, now=snapshot.now)
        running = replace(snapshot.turn, status=TurnStatus.RUNNING)
        return Decision(result=[child.id for child in children], turn=running, calls=asked, children=children)

    return world.store.transact(turn_id, rule) or []


def seen_children(world: World, turn_id: str) -> tuple[Turn, ...]:
    """The children that a rule is shown."""
    return world.store.transact(turn_id, lambda snapshot: Decision(result=snapshot.children)) or ()


def end(world: World, turn_id: str, **changes: Any) -> None:  # noqa: ANN401 - any field's value
    """End the turn."""
    world.change(turn_id, **OVER, finished_at=world.now(), **changes)


def test_child_is_born_with_its_call(world: World) -> None:
    """One commit adds the call, the child's turn, session and message, and its first event, which is also sent."""
    parent = world.queued(metadata={"script": "x"}, priority="batch")
    (child_id,) = ask(world, parent)
    child = world.turn(child_id)
    assert child_id == child_turn_id(parent, "0.0")
    assert (child.parent_id, child.parent_call_id, child.number, child.waits) == (parent, "0.0", 1, False)
    assert (child.session_id, child.agent, child.input) == (child_id, "helper", "question 0")
    assert (child.priority, child.metadata, child.status) == ("batch", {"script": "x"}, TurnStatus.QUEUED)
    assert (child.budget.timeout_s, child.budget.max_tokens, child.budget.max_dollars) == (20.0, 500, 1.0)
    assert [message.content for message in world.store.history(child_id)] == ["question 0"]
    assert [event.type for event in world.store.events_of(child_id)] == ["turn.queued"]
    assert world.sink.sent[-1] == world.store.events_of(child_id)[0]
    with reading(world.engine).connect() as connection:
        kept = connection.execute(select(sessions.c.turns).where(sessions.c.id == child_id)).scalars().all()
    assert kept == [1]


@pytest.mark.one_database("postgres")
def test_child_is_found_like_any_turn_that_nobody_looks_at(world: World) -> None:
    """It becomes overdue like any other turn, because its wake-up may be lost."""
    (child_id,) = ask(world, world.queued())
    assert child_id in [turn_id for turn_id, *_ in world.store.overdue(100, 5.0)]


@pytest.mark.one_database("postgres")
def test_rule_is_shown_the_turns_that_open_calls_are(world: World) -> None:
    """A rule sees them in their current state until their calls have ended, and no other turn that has such an id."""
    parent = world.queued()
    first, second = ask(world, parent, calls=2)
    world.change(first, used=Usage(output_tokens=7), delegated=Usage(dollars=0.5))
    shown = {child.id: child for child in seen_children(world, parent)}
    assert shown == {first: world.turn(first), second: world.turn(second)}
    assert shown[first].spent == Usage(output_tokens=7, dollars=0.5)
    world.put(replace(asking(parent), status=CallStatus.ENDED))
    assert [child.id for child in seen_children(world, parent)] == [second]
    world.change(second, parent_id=None)
    assert seen_children(world, parent) == ()


def test_rule_is_shown_which_waits_below_go_on(world: World) -> None:
    """It sees the waits that the children report, each under its fence, until the child is looked at again."""
    parent = world.queued()
    (child,) = ask(world, parent)
    waiting, answered, again, unreported = ask(world, child, calls=4)
    world.change(child, parked_below=tuple(Park(turn_id=each, fence=2) for each in (waiting, answered, again)))
    parks = TurnStatus.REQUIRES_ACTION
    as_they_are = ((waiting, parks, 2), (answered, TurnStatus.RUNNING, 2), (again, parks, 4), (unreported, parks, 2))
    for turn_id, status, fence in as_they_are:
        world.change(turn_id, status=status, fence=fence)
    shown = world.store.transact(parent, lambda snapshot: Decision(result=snapshot.parked)) or frozenset[Park]()
    assert {Park(turn_id=waiting, fence=2), Park(turn_id=again, fence=4)} == shown
    assert world.store.transact(child, lambda snapshot: Decision(result=snapshot.parked)) == frozenset()


def test_end_of_a_child_has_its_parent_looked_at(world: World) -> None:
    """So does the start or end of a wait for a person, or a new one below it; the parent's version does not change.

    No other turn is looked at for that.
    """
    parent, other = world.queued(), world.queued()
    first, second = ask(world, parent, calls=2)
    before = world.turn(parent)
    world.change(parent, wake_at=world.now() + 100.0)
    wakes: list[int] = []
    for change in ({"looks": 1}, {"parked_at": 1.0}, {"looks": 2}, {"parked_at": None}, {"owner": "v"}):
        world.change(first, **change)
        wakes.append(world.turn(parent).wakes)
    assert wakes == [0, 1, 1, 2, 2]
    below = Park(turn_id="x", fence=1), Park(turn_id="y", fence=2)
    for known in (below[:1], below, below[1:], ()):
        world.change(first, parked_below=known)
        wakes.append(world.turn(parent).wakes)
        assert world.turn(first).parked_below == known
    assert wakes[5:] == [3, 4, 4, 4]
    world.change(parent, wake_at=world.now() + 100.0)
    end(world, second)
    woken = world.turn(parent)
    assert (woken.wakes, woken.last_seq) == (5, before.last_seq)
    assert (woken.wake_at or 0.0) <= world.now()
    assert world.turn(other).wakes == 0


def test_end_of_a_turn_stops_the_children_that_go_on(world: World) -> None:
    """They stop in the same commit; ended children, and those of other turns, are left alone."""
    parent, other = world.queued(), world.queued()
    over, goes_on = ask(world, parent, calls=2)
    (others,) = ask(world, other)
    end(world, over)
    end(world, parent)
    assert [world.turn(each).cancel_requested for each in (over, goes_on, others)] == [False, True, False]
    assert (world.turn(goes_on).wake_at or 0.0) <= world.now()
    assert [world.turn(each).wakes for each in (over, goes_on, others)] == [0, 1, 0]
    end(world, goes_on)
    assert world.turn(parent).wake_at is None


def test_end_that_does_not_come_about_stops_and_wakes_nobody(postgres_world: World) -> None:
    """A turn that changed while its end was decided goes on, and so does who works for it or waits for it."""
    world = postgres_world
    parent = world.queued()
    (turn_id,) = ask(world, parent)
    (child,) = ask(world, turn_id)
    wakes, decided = world.turn(parent).wakes, list[Snapshot]()

    def rule(snapshot: Snapshot) -> Decision[None]:
        decided.append(snapshot)
        if len(decided) > 1:
            return Decision(result=None)
        world.change(turn_id, looks=1)
        return Decision(result=None, turn=replace(snapshot.turn, **OVER, finished_at=snapshot.now))

    world.store.transact(turn_id, rule)
    assert len(decided) == 2
    assert (world.turn(child).cancel_requested, world.turn(parent).wakes) == (False, wakes)


def test_end_of_a_turn_stops_its_grandchildren(world: World) -> None:
    """They stop in the same commit, without a look at the children first; those that have ended are left alone."""
    parent = world.queued()
    (child,) = ask(world, parent)
    over, goes_on = ask(world, child, calls=2)
    end(world, over)
    world.change(goes_on, wake_at=world.now() + 100.0)
    end(world, parent)
    assert [world.turn(each).cancel_requested for each in (child, over, goes_on)] == [True, False, True]
    assert (world.turn(goes_on).wake_at or 0.0) <= world.now()


def test_grandchild_whose_row_is_held_is_stopped_by_its_own_parent(postgres_world: World) -> None:
    """Its row is not waited for: a process that ends the child in between holds that row, and would wait for ours."""
    world = postgres_world
    parent = world.queued()
    (child,) = ask(world, parent)
    held, free = ask(world, child, calls=2)
    with world.locked(select(turns.c.id).where(turns.c.id == held).with_for_update()):
        end(world, parent)
    assert [world.turn(each).cancel_requested for each in (child, held, free)] == [True, False, True]
    end(world, child)
    assert world.turn(held).cancel_requested


def test_child_never_waits_for_its_parents_row(postgres_world: World) -> None:
    """A process that ends the parent holds its row and waits for the children, so a child skips that row if locked."""
    world = postgres_world
    parent = world.queued()
    (child_id,) = ask(world, parent)
    with world.locked(select(turns.c.id).where(turns.c.id == parent).with_for_update()):
        end(world, child_id)
        assert world.turn(child_id).status is TurnStatus.COMPLETED
    assert world.turn(parent).wakes == 0


def test_families_that_end_at_once_hold_nobody_up(world: World) -> None:
    """A turn, its children and their children can all be ended by different processes at the same moment."""
    parents = [world.queued() for _ in range(6)]
    asked = [(parent, *ask(world, parent, calls=2)) for parent in parents]
    everyone = [
        each for parent, first, second in asked for each in (second, parent, *ask(world, first, calls=2), first)
    ]
    in_threads(len(everyone), lambda place: end(world, everyone[place]))
    assert {world.turn(turn_id).status for turn_id in everyone} == {TurnStatus.COMPLETED}


@pytest.mark.one_database("postgres")
def test_child_is_a_part_of_its_parents_share(world: World) -> None:
    """It neither counts nor waits, because its parent keeps a place while it waits for the child."""
    store = SqlTurnStore(world.engine, world.sink, tenant_turns=1)
    parent = world.queued(tenant="busy")
    (child_id,) = ask(world, parent)
    world.change(child_id, status=TurnStatus.RUNNING)
    world.change(parent, status=TurnStatus.REQUIRES_ACTION)
    another = world.queued(tenant="busy")
    assert is_crowded(store, another) is False
    world.change(parent, status=TurnStatus.RUNNING)
    world.change(child_id, status=TurnStatus.QUEUED)
    assert (is_crowded(store, another), is_crowded(store, child_id)) == (True, False)


def test_family_that_waits_for_people_holds_no_place(world: World) -> None:
    """It is like a turn that itself waits for a person, and takes a place again at the first look after an answer."""
    store = SqlTurnStore(world.engine, world.sink, tenant_turns=1)
    parent, another = world.queued(tenant="asking"), world.queued(tenant="asking")
    ask(world, parent)
    told: list[bool | None] = []
    for parked_at in (None, world.now(), None):
        world.change(parent, parked_at=parked_at)
        told.append(is_crowded(store, another))
    assert told == [True, False, True]
