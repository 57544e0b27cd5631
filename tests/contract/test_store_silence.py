"""The contract of ``TurnStore`` on a Postgres that stops answering while its connections stay open."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from harness_worker.adapters.sql.engine import BEAT, WORK, Timeouts, make_engine
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.errors import TransientError
from harness_worker.ports import HeldTurn, RunningCall
from harness_worker.schema import turns
from tests.contract.store_world import RecordedEvents, World, one_event
from tests.relay import Relay

SOON = Timeouts(statement_s=2.0)
LIMIT_S = 3.0
"""The limit of each wait for an answer, in seconds: one more than a statement's."""
SLACK_S = 10.0
COMMITTED = b"C\0\0\0\x0bCOMMIT\0"
"""The server's answer to a commit."""


@pytest.fixture
def far(line: Relay) -> Generator[World]:
    """A store behind a line that can go silent, with its connections open."""
    engine = make_engine(line.url, timeouts=SOON)
    beats = make_engine(line.url, timeouts=replace(BEAT, statement_s=SOON.statement_s), pool_size=1)
    sink = RecordedEvents()
    for each in (engine, beats):
        held = [each.connect(), each.connect()]
        for connection in held:
            connection.close()
    yield World(store=SqlTurnStore(engine, sink, beats=beats), engine=engine, sink=sink)
    engine.dispose()
    beats.dispose()


def took_s(work: Callable[[], object]) -> float:
    """How long the operation took, in seconds."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def load(world: World, turn_id: str) -> None:
    """An operation that reads."""
    assert world.store.load(turn_id) is not None


def transact(world: World, turn_id: str) -> None:
    """An operation that reads, then writes."""
    world.store.transact(turn_id, one_event)


def beat(world: World, turn_id: str) -> None:
    """An operation that must not take long."""
    world.store.beat_turns([HeldTurn(turn_id, "w", 1)], 6.0)


@pytest.mark.parametrize("work", [load, transact, beat])
def test_store_heals_though_its_connections_are_never_answered(
    far: World, line: Relay, work: Callable[[World, str], None]
):
    """The first wait is given up in time, and with it all connections that were open then."""
    turn_id = far.queued()
    line.silence()
    assert LIMIT_S <= took_s(lambda: work(far, turn_id)) < LIMIT_S + SLACK_S
    with far.engine.connect():  # so that the work needs another connection than the one just used
        assert took_s(lambda: work(far, turn_id)) < LIMIT_S


def test_lose_call_waits_no_longer_than_a_heartbeat(line: Relay):
    """While the database is silent, it blocks a tool worker's main thread, once for each process that dies."""
    engine, beats = make_engine(line.url), make_engine(line.url, timeouts=BEAT, pool_size=1)
    world = World(store=SqlTurnStore(engine, RecordedEvents(), beats=beats), engine=engine, sink=RecordedEvents())
    turn_id = world.queued()
    run = RunningCall(turn_id=turn_id, call_id="0.0", attempt=1, runner="host/7")
    try:
        world.store.lose_call(run)
        line.silence()
        assert took_s(lambda: world.store.lose_call(run)) < WORK.statement_s
    finally:
        engine.dispose()
        beats.dispose()


def test_transact_whose_commit_is_never_answered_is_in_doubt(far: World, line: Relay):
    """It may have been made, so it is not repeated, and the caller is told in time to look."""
    turn_id = far.queued()
    decided: list[Snapshot] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        decided.append(snapshot)
        line.silence()
        return one_event(snapshot)

    def commit() -> None:
        with pytest.raises(TransientError, match="lost during a commit, which may have been made"):
            far.store.transact(turn_id, decide)

    assert LIMIT_S <= took_s(commit) < LIMIT_S + SLACK_S
    assert len(decided) == 1
    assert far.seqs(turn_id) == [1]
    far.store.transact(turn_id, one_event)
    assert far.seqs(turn_id) == [1, 2]


def test_connection_that_is_lost_after_its_commit_was_confirmed_takes_nothing_back(far: World, line: Relay):
    """The commit stands, so it is neither in doubt nor made again."""
    turn_id = far.queued()
    decided: list[Snapshot] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        decided.append(snapshot)
        line.break_at(COMMITTED)
        return one_event(snapshot)

    SqlTurnStore(far.engine, far.sink, unlocked_tries=0).transact(turn_id, decide)
    assert len(decided) == 1
    assert far.seqs(turn_id) == [1, 2]


def in_a_transaction(world: World, line: Relay, *, commits: bool) -> None:
    """Run a transaction at whose end the server no longer answers."""
    with world.engine.connect() as connection:
        connection.execute(select(turns.c.id))
        line.silence()
        if commits:
            connection.commit()


@pytest.mark.parametrize("commits", [False, True])
def test_end_of_a_transaction_that_is_never_answered_is_a_lost_connection(far: World, line: Relay, commits: bool):
    """A rollback or commit waits no longer than a statement does."""

    def end() -> None:
        with pytest.raises(OperationalError) as lost:
            in_a_transaction(far, line, commits=commits)
        assert lost.value.connection_invalidated

    assert LIMIT_S <= took_s(end) < LIMIT_S + SLACK_S
    with far.engine.connect() as connection:
        connection.execute(text("SELECT 1"))


def test_statement_that_the_server_ends_keeps_its_connection(far: World):
    """The client's limit is longer than the server's, whose error still counts as an answer."""
    with far.engine.connect() as connection:
        with pytest.raises(OperationalError, match="statement timeout") as ended:
            connection.execute(text("SELECT pg_sleep(30)"))
        assert not ended.value.connection_invalidated
        connection.rollback()
        connection.execute(text("SELECT 1"))
