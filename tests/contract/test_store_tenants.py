"""A tenant's share of running turns, in the store: one suite, on SQLite and on Postgres."""

from __future__ import annotations

from itertools import chain

from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.wire import Priority, TurnStatus
from tests.contract.store_world import World, is_crowded

BATCH_FIRST = (Priority.BATCH, Priority.INTERACTIVE)


def sharing(world: World, turns: int) -> SqlTurnStore:
    """A store that lets this many turns of a tenant run."""
    return SqlTurnStore(world.engine, world.sink, tenant_turns=turns)


def test_tenant_is_crowded_when_its_share_runs(world: World) -> None:
    """Only a tenant's own running turns count, and only queued turns are told that it is crowded.

    A turn that is a call of another one, and one whose calls all wait for people, do not count.
    """
    store = sharing(world, 2)
    ids = [world.queued(tenant="noisy") for _ in range(5)]
    quiet = world.queued(tenant="quiet")
    world.change(ids[0], status=TurnStatus.RUNNING)
    world.change(world.queued(tenant="noisy", parent_id=ids[0]), status=TurnStatus.RUNNING)
    world.change(world.queued(tenant="noisy"), status=TurnStatus.RUNNING, parked_at=world.now())
    world.change(ids[1], status=TurnStatus.REQUIRES_ACTION)
    world.change(ids[2], status=TurnStatus.COMPLETED, finished_at=world.now())
    assert is_crowded(store, ids[4]) is False
    world.change(ids[3], status=TurnStatus.RUNNING)
    assert [is_crowded(store, turn_id) for turn_id in (ids[4], ids[3], quiet)] == [True, False, False]
    assert is_crowded(world.store, ids[4]) is False


def test_oldest_waiting_turns_of_a_tenant_are_next(world: World) -> None:
    """They are turns that waited and are not behind another of their session, two at a time; none without shares."""
    store = sharing(world, 1)
    anothers = world.queued(tenant="quiet", session_id="talk")
    first = world.queued(tenant="noisy", session_id="talk")
    behind = world.queued(tenant="noisy", session_id="talk")
    others = [world.queued(tenant="noisy") for _ in range(3)]
    ended = world.turn(world.queued(tenant="noisy"))
    assert store.next_of_tenant(ended) == []
    for turn_id in (anothers, behind, *others):
        world.change(turn_id, waits=True)
    assert store.next_of_tenant(ended) == [(others[0], "interactive"), (others[1], "interactive")]
    world.change(first, status=TurnStatus.COMPLETED, finished_at=world.now())
    assert store.next_of_tenant(ended) == [(behind, "interactive"), (others[0], "interactive")]
    assert world.store.next_of_tenant(ended) == []


def test_interactive_turns_of_a_tenant_are_next_before_its_batches(world: World) -> None:
    """Thousands of waiting batch turns do not hold up a turn that somebody waits for."""
    store = sharing(world, 1)
    ids = {priority: [world.queued(tenant="noisy", priority=priority) for _ in range(2)] for priority in BATCH_FIRST}
    ended = world.turn(world.queued(tenant="noisy"))
    for turn_id in chain.from_iterable(ids.values()):
        world.change(turn_id, waits=True)
    interactive, batch = ids[Priority.INTERACTIVE], ids[Priority.BATCH]
    assert store.next_of_tenant(ended) == [(turn_id, Priority.INTERACTIVE) for turn_id in interactive]
    world.change(interactive[0], waits=False)
    assert store.next_of_tenant(ended) == [(interactive[1], Priority.INTERACTIVE), (batch[0], Priority.BATCH)]
