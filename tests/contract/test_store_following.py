"""Continuing from one's own last commit, on Postgres: it is not read again, and no other commit is overlooked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from harness_worker.adapters.sql import recent
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.records import CallStatus
from harness_worker.ports import TurnStore
from harness_worker.schema import tool_calls, turns
from harness_worker.testing.waiting import wait_until
from tests.contract.store_histories import TURN, failed_in_the_middle, finished_by_reads, finished_by_writes
from tests.contract.store_world import World, new_call, one_event
from tests.unit.builders import a_turn


@pytest.fixture(autouse=True)
def _remembered_for_long(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - pytest calls it
    """Remember commits for long: a busy machine may take longer between two statements than they are valid."""
    monkeypatch.setattr(recent, "FRESH_S", 60.0)


class Looking:
    """A store that compares, after each commit, what it remembers of it with what the database contains.

    Attributes:
        pairs: Both states, for each commit.
    """

    def __init__(self, store: TurnStore) -> None:
        self._store = store
        self.pairs: list[tuple[Snapshot, Snapshot]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        return getattr(self._store, name)

    def transact(self, turn_id: str, decide: Callable[[Snapshot], Decision[Any]]) -> Any:  # noqa: ANN401 - any result
        """Transact, and then make a decision that changes nothing, first asked about what is remembered."""
        result = self._store.transact(turn_id, decide)
        seen: list[Snapshot] = []
        self._store.transact(turn_id, lambda s: Decision(result=seen.append(s)), follows=True)
        self.pairs.append((seen[0], seen[-1]))
        assert len(seen) == 2
        return result


@pytest.mark.parametrize("history", [finished_by_writes, finished_by_reads, failed_in_the_middle])
def test_what_is_remembered_of_a_commit_is_what_is_read(
    postgres_world: World, history: Callable[[TurnStore], None]
) -> None:
    """Turn and calls are the same, whatever the commit changed, and the time is not ahead of the database's."""
    looking: Any = Looking(postgres_world.store)
    looking.insert_turn(a_turn(id=TURN))
    history(looking)
    for remembered, there in looking.pairs:
        assert remembered.now <= there.now
        assert replace(remembered, now=there.now) == there


def test_what_follows_is_decided_anew_on_a_turn_that_somebody_changed(postgres_world: World):
    """The second of two commits sees a cancel in between, and is made once."""
    world = postgres_world
    turn_id = world.queued()
    world.store.transact(turn_id, one_event)
    with world.engine.begin() as stranger:
        stranger.execute(update(turns).where(turns.c.id == turn_id).values(cancel_requested=True))
    seen: list[bool] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        seen.append(snapshot.turn.cancel_requested)
        return one_event(snapshot)

    world.store.transact(turn_id, decide, follows=True)
    assert seen == [False, True]
    assert world.seqs(turn_id) == [1, 2, 3]


def test_what_follows_is_decided_and_made_once(postgres_world: World):
    """If nobody has changed the turn, what was decided on what is remembered stands, and is not decided again."""
    world = postgres_world
    turn_id = world.queued()
    world.store.transact(turn_id, one_event)
    seen: list[int] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        seen.append(snapshot.turn.last_seq)
        return one_event(snapshot)

    world.store.transact(turn_id, decide, follows=True)
    assert seen == [2]
    assert world.seqs(turn_id) == [1, 2, 3]


@pytest.mark.parametrize("follows", [True, False])
def test_what_is_remembered_is_neither_kept_for_long_nor_taken_unasked(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch, follows: bool
):
    """The turn is read again after a while, and for callers that do not pass ``follows``."""
    world = postgres_world
    if follows:
        monkeypatch.setattr(recent, "FRESH_S", 0.0)
    turn_id = world.queued()
    world.store.transact(turn_id, one_event)
    with world.engine.begin() as stranger:
        stranger.execute(update(turns).where(turns.c.id == turn_id).values(wakes=7))
    seen: list[int] = []
    world.store.transact(turn_id, lambda s: Decision(result=seen.append(s.turn.wakes)), follows=follows)
    assert seen == [7]


def test_a_lease_that_seems_over_is_read_again(postgres_world: World):
    """A heartbeat prolongs it without a trace in the turn's row; by the remembered state the call would be lost."""
    world = postgres_world
    turn_id = world.queued()
    world.put(new_call(turn_id, 0, status=CallStatus.RUNNING, lease_until=world.now() - 0.01, runner="host/1"))
    until = world.now() + 6.0
    with world.engine.begin() as beat:
        beat.execute(update(tool_calls).where(tool_calls.c.turn_id == turn_id).values(lease_until=until))
    seen: list[float | None] = []
    world.store.transact(turn_id, lambda s: Decision(result=seen.append(s.calls[0].lease_until)), follows=True)
    assert seen == [until]


def stand_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop this process's clock, so that the remembered time lags behind the database's."""
    monkeypatch.setattr(vars(world.store)["_recent"], "clock", lambda: 100.0)


def test_what_follows_while_a_call_runs_has_the_databases_time(postgres_world: World, monkeypatch: pytest.MonkeyPatch):
    """A call that ended a moment ago must not be recorded as having ended before that."""
    world = postgres_world
    stand_still(world, monkeypatch)
    turn_id = world.queued()
    world.put(new_call(turn_id, 0, status=CallStatus.RUNNING, lease_until=world.now() + 6.0, runner="host/1"))
    body_ended = world.now()
    seen: list[float] = []
    world.store.transact(turn_id, lambda s: Decision(result=seen.append(s.now)), follows=True)
    assert len(seen) == 2, "what is remembered was asked first"
    assert body_ended < seen[0] < seen[1]


def test_a_lease_that_is_over_by_the_databases_time_is_read_again(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
):
    """It has not expired by this process's clock, but that lags, so the lease is read again for a heartbeat."""
    world = postgres_world
    stand_still(world, monkeypatch)
    turn_id = world.queued()
    ends = world.now() + 0.1
    world.put(new_call(turn_id, 0, status=CallStatus.RUNNING, lease_until=ends, runner="host/1"))
    wait_until(lambda: world.now() > ends, "the lease to be over")
    until = world.now() + 6.0
    with world.engine.begin() as beat:
        beat.execute(update(tool_calls).where(tool_calls.c.turn_id == turn_id).values(lease_until=until))
    seen: list[float | None] = []
    world.store.transact(turn_id, lambda s: Decision(result=seen.append(s.calls[0].lease_until)), follows=True)
    assert seen == [until]
