"""The contract of ``TurnStore`` under faults and contention: what heals, what is reported, what is never lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError, OperationalError

from harness_worker.adapters.sql.engine import Timeouts, close, dispose_inherited, make_engine, reading, timeouts_within
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.adapters.sql.transactions import TransactionResult, committing, write
from harness_worker.bootstrap.fleet import make_fleet
from harness_worker.config import load_settings
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.records import EventDraft
from harness_worker.errors import ConfigError, TransientError
from harness_worker.ports import HeldTurn
from harness_worker.schema import tool_calls, turns
from harness_worker.testing.waiting import wait_until
from tests.contract.store_world import RecordedEvents, World, new_call, new_turn, one_event, waiters, world_of

PROCESSES, TRANSACTIONS = 4, 100


def count_up(database_url: str, turn_id: str) -> None:
    """Run as one of many processes: increment a counter repeatedly, with an event each time."""

    def increment(snapshot: Snapshot) -> Decision[None]:
        turn = replace(snapshot.turn, wakes=snapshot.turn.wakes + 1)
        return Decision(result=None, turn=turn, events=(EventDraft(type="tool.late", data={}),))

    with world_of(database_url) as world:
        for _ in range(TRANSACTIONS):
            world.store.transact(turn_id, increment)


def test_transact_by_many_processes_loses_none_and_errs_none(world: World, database_url: str):
    """Four processes make a hundred transactions each on one turn: all count, and no number is missing."""
    turn_id = world.queued()
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(count_up, [database_url] * PROCESSES, [turn_id] * PROCESSES))
    total = PROCESSES * TRANSACTIONS
    assert world.turn(turn_id).wakes == total
    assert world.seqs(turn_id) == list(range(1, total + 2))


@pytest.mark.parametrize(("is_patient", "tries"), [(True, 3), (False, 2)])
def test_write_is_repeated_more_than_once_if_it_is_patient(sqlite_url: str, is_patient: bool, tries: int):
    """A commit is made in the end; a heartbeat is tried once more and leaves the rest to the next one."""
    asked: list[Connection] = []

    def locked_twice(connection: Connection) -> TransactionResult[None]:
        asked.append(connection)
        if len(asked) < 3:
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))
        return TransactionResult(value=None)

    engine = make_engine(sqlite_url)
    with nullcontext() if is_patient else pytest.raises(TransientError):
        write(engine, locked_twice, is_patient=is_patient)
    engine.dispose()
    assert len(asked) == tries


def end_backends(postgres_url: str) -> None:
    """End all connections, as a restart of Postgres does."""
    engine = make_engine(postgres_url)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = "
    with engine.begin() as connection:
        connection.execute(text(others + "current_database()"))
    engine.dispose()


def test_store_heals_after_its_connections_ended(postgres_world: World, postgres_url: str):
    """A restart of Postgres between transactions goes unnoticed on each of several connections."""
    world = postgres_world
    turn_id = world.queued()
    for method in (
        lambda: world.store.transact(turn_id, one_event),
        lambda: world.store.load(turn_id),
        lambda: world.store.history(turn_id),
        lambda: world.store.overdue(1, 60.0),
        lambda: world.store.beat_turns([HeldTurn(turn_id, "w", 1)], 6.0),
    ):
        both = [world.engine.connect(), world.engine.connect()]  # two connections to the pool
        for connection in both:
            connection.close()
        end_backends(postgres_url)
        method()
    assert world.seqs(turn_id) == [1, 2]


def test_transact_whose_connection_ends_midway_is_made_once_or_said_to_be_in_doubt(
    postgres_world: World, postgres_url: str
):
    """A loss noticed before the commit is repaired silently; one noticed at the commit makes the caller look."""
    world = postgres_world
    turn_id = world.queued()
    seen: list[int] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        seen.append(snapshot.turn.last_seq)
        if len(seen) == 1:
            end_backends(postgres_url)
        return one_event(snapshot)

    try:
        world.store.transact(turn_id, decide)
    except TransientError:
        assert seen == [1]
        assert world.seqs(turn_id) == [1]
        world.store.transact(turn_id, decide)
    assert seen == [1, 1]
    assert world.seqs(turn_id) == [1, 2]
    assert [event.seq for event in world.sink.sent] == [1, 2]


class OverrunError(Exception):
    """What a soft deadline raises in the main thread, wherever that thread is."""


@contextmanager
def interrupted(other: World) -> Generator[None]:
    """Raise in this thread, the main one, as soon as it waits for a lock of the database."""

    def overrun(_signum: int, _frame: object) -> None:
        raise OverrunError

    def interrupt() -> None:
        wait_until(lambda: waiters(other) == 1, "the statement waits")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, overrun)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        # SQLAlchemy's rollback, if it began one, meets what it left.
        with pytest.raises((OverrunError, OperationalError)):
            yield
    finally:
        interrupter.join()
        signal.signal(signal.SIGUSR2, before)


def look(world: World) -> None:
    """Read through SQLAlchemy, which rolls nothing back."""
    with reading(world.engine).connect() as connection:
        connection.execute(select(turns))


def read(world: World) -> None:
    """Read as ``read_artifact`` does."""
    world.artifacts.url_of("a", tenant="default", session_id="s")


def transact(world: World) -> None:
    """Decide about a turn."""
    world.store.transact("turn", one_event)


def in_a_transaction(world: World) -> None:
    """Run a statement that waits, in a transaction of SQLAlchemy's."""
    with world.engine.begin() as connection:
        connection.execute(select(turns).with_for_update())


@pytest.mark.parametrize("work", [look, read, transact, in_a_transaction])
def test_statement_that_is_interrupted_takes_its_connection_with_it(
    postgres_world: World, postgres_url: str, work: Callable[[World], None]
):
    """If a tool's soft deadline strikes while the driver waits, the next statement gets a clean connection."""
    world = postgres_world
    turn_id = world.queued(id="turn")
    everything = text("LOCK TABLE artifacts, turns IN ACCESS EXCLUSIVE MODE")
    with world_of(postgres_url) as other, other.locked(everything), interrupted(other):
        work(world)
    look(world)  # which is not repeated
    for _ in range(3):
        read(world)
        transact(world)
    assert world.seqs(turn_id) == [1, 2, 3, 4]


@pytest.mark.parametrize("tries", [0, 3], ids=["locked", "unlocked"])
def test_transact_whose_commit_is_lost_says_so_and_sends_nothing(postgres_world: World, tries: int):
    """Nobody can know whether it was made, so it is not repeated, and the caller is told to look."""
    world = postgres_world
    store = SqlTurnStore(world.engine, world.sink, unlocked_tries=tries)
    turn_id = world.queued()
    sent = len(world.sink.sent)
    with world.engine.begin() as connection:
        connection.execute(text(DROP_AT_COMMIT))
    decided: list[Snapshot] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        decided.append(snapshot)
        return one_event(snapshot)

    with pytest.raises(TransientError, match="commit"):
        store.transact(turn_id, decide)
    assert len(decided) == 1
    assert len(world.sink.sent) == sent


@pytest.mark.parametrize(
    ("said", "is_lost", "is_in_doubt"),
    [
        (psycopg.errors.DeadlockDetected(), False, False),
        (psycopg.errors.ReadOnlySqlTransaction(), True, False),
        (psycopg.errors.AdminShutdown(), True, True),
        (psycopg.errors.QueryCanceled(), True, True),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True, True),
        (psycopg.OperationalError("sending query failed"), False, True),
    ],
    ids=["refused", "only reads", "shut down", "lost after an answer", "lost", "unanswered"],
)
def test_commit_is_in_doubt_unless_the_database_itself_refused_it(
    said: psycopg.Error, is_lost: bool, is_in_doubt: bool
):
    """What was refused may be made again; what may have been made is not, or a write would run twice."""
    error = DBAPIError(None, None, said, connection_invalidated=is_lost)
    engine = make_engine("postgresql://u:secret@127.0.0.1/db")
    with pytest.raises(TransientError if is_in_doubt else DBAPIError), committing(engine):
        raise error


DROP_AT_COMMIT = """
CREATE FUNCTION drop_me() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER drop_at_commit AFTER INSERT ON turn_events DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION drop_me();
"""


TAKEN_ONCE = """
CREATE SEQUENCE inserts;
CREATE FUNCTION taken_once() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN
    IF nextval('inserts') = 1 THEN RAISE EXCEPTION 'another was faster' USING ERRCODE = 'unique_violation'; END IF;
    RETURN NEW;
  END $$;
CREATE TRIGGER taken_once BEFORE INSERT ON turn_events FOR EACH ROW EXECUTE FUNCTION taken_once();
"""


def test_transact_whose_write_is_refused_at_the_commit_is_not_in_doubt(postgres_world: World):
    """Writes are sent with the commit, which then was not made: it is repeated if that may help."""
    world = postgres_world
    turn_id = world.queued()
    with world.engine.begin() as connection:
        connection.execute(text(TAKEN_ONCE))
    decided: list[Snapshot] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        decided.append(snapshot)
        return one_event(snapshot)

    SqlTurnStore(world.engine, world.sink, unlocked_tries=0).transact(turn_id, decide)
    assert len(decided) == 2
    assert world.seqs(turn_id) == [1, 2]


TROUBLE = """
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'tuple concurrently updated' USING ERRCODE = 'XX000'; END $$;
CREATE TRIGGER trouble BEFORE INSERT ON turn_events FOR EACH ROW EXECUTE FUNCTION trouble();
"""


def test_error_of_the_databases_own_is_transient(postgres_world: World):
    """Postgres raises one if a table is altered at the same moment: this is not a bug, so the turn is put off."""
    world = postgres_world
    turn_id = world.queued()
    with world.engine.begin() as connection:
        connection.execute(text(TROUBLE))
    with pytest.raises(TransientError, match="tuple concurrently updated"):
        world.store.transact(turn_id, one_event)
    with world.engine.begin() as connection:
        connection.execute(text("DROP TRIGGER trouble ON turn_events"))
    world.store.transact(turn_id, one_event)
    assert world.seqs(turn_id) == [1, 2]


CANCEL = """
SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


def test_read_that_the_server_cancelled_leaves_a_connection_that_reads(postgres_world: World, postgres_url: str):
    """However often it was read before: the driver would go on to name a statement that the server never prepared."""
    world = postgres_world
    turn_id = world.queued()

    def cancel(locking: Connection) -> None:
        """Cancel the read, as the statement's timeout does."""
        wait_until(lambda: waiters(other) == 1, "the read to wait for the lock")
        locking.execute(text(CANCEL))

    with world_of(postgres_url) as other, ThreadPoolExecutor(1) as thread:
        for _ in range(6):
            with other.locked(text("LOCK TABLE turns IN ACCESS EXCLUSIVE MODE")) as locking:
                cancelled = thread.submit(cancel, locking)
                with pytest.raises(TransientError, match="canceling statement"):
                    world.store.load(turn_id)
                cancelled.result()
            assert world.store.load(turn_id) is not None


def test_server_that_only_reads_is_one_that_does_not_answer(postgres_world: World):
    """Another server has taken over: this is not a bug, so the turn is put off, and new connections are opened."""
    world = postgres_world
    turn_id = world.queued()
    only_reads = world.engine.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    engine = make_engine(only_reads.render_as_string(hide_password=False))
    with pytest.raises(TransientError, match="read-only"):
        SqlTurnStore(engine, world.sink).transact(turn_id, one_event)
    with pytest.raises(TransientError, match="read-only"):
        SqlTurnStore(engine, world.sink, unlocked_tries=0).transact(turn_id, one_event)
    engine.dispose()
    assert world.seqs(turn_id) == [1]


def test_transact_repeats_after_a_deadlock(postgres_world: World):
    """Postgres ends one of two transactions that wait for each other, and that one is repeated."""
    world = postgres_world
    turn_id = world.queued()
    for position in range(2):
        world.put(new_call(turn_id, position))
    decided: list[Snapshot] = []

    def decide(snapshot: Snapshot) -> Decision[None]:
        decided.append(snapshot)
        return one_event(snapshot)

    calls, turn = (select(each).with_for_update(key_share=True) for each in (tool_calls.c.position, turns.c.id))
    with ThreadPoolExecutor(2) as pool, world.engine.connect() as other, world.engine.connect() as third:
        other.execute(text("SET deadlock_timeout = '60s'"))  # so that ours is the one that Postgres ends
        third.execute(calls.where(tool_calls.c.position == 0))
        other.execute(calls.where(tool_calls.c.position == 1))
        locking = SqlTurnStore(world.engine, world.sink, unlocked_tries=0)
        transact = pool.submit(locking.transact, turn_id, decide)
        wait_until(lambda: waiters(world) == 1, "the transaction to hold the turn and wait for the first call")
        waiting = pool.submit(other.execute, turn)
        wait_until(lambda: waiters(world) == 2, "the other to wait for the turn")
        third.rollback()  # only now does ours wait for the other: Postgres looks once, a second after a wait began
        waiting.result()
        assert decided == []
        other.rollback()
        transact.result()
        other.invalidate()
    assert len(decided) == 1
    assert world.seqs(turn_id) == [1, 2]


def test_stopped_process_holds_a_turn_no_longer_than_its_lease(postgres_world: World, postgres_url: str):
    """Postgres ends the transaction of a process that stalls with the turn locked, and others can go on."""
    world = postgres_world
    turn_id = world.queued()
    stopped = make_engine(postgres_url, timeouts=timeouts_within(3.0))
    with stopped.connect() as connection:
        connection.execute(select(turns.c.id).where(turns.c.id == turn_id).with_for_update(key_share=True))
        world.store.transact(turn_id, one_event)
        connection.invalidate()
    stopped.dispose()
    assert world.seqs(turn_id) == [1, 2]


@pytest.mark.parametrize("lease_ttl_s", [6.0, 3.0])
def test_workers_transactions_are_ended_before_their_lease(postgres_url: str, lease_ttl_s: float):
    """Whatever ``HARNESS_LEASE_TTL_S`` is, Postgres ends the transaction of a stalled worker in time."""
    urls = {"database_url": postgres_url, "redis_url": "redis://127.0.0.1:1/0"}
    fleet = make_fleet(load_settings(**urls, lease_ttl_s=lease_ttl_s, heartbeat_s=1.0))
    with fleet.engine.connect() as connection:
        asked = "SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
        idle_ms = connection.execute(text(asked)).scalar_one()
    fleet.close()
    assert 0 < idle_ms < lease_ttl_s * 1_000


def test_store_of_an_unreachable_database_is_transient_and_hides_the_password():
    """A refused connection is worth another try, and the message is one line that is safe to show."""
    engine = make_engine("postgres://someone:s3cret@127.0.0.1:1/none")
    store = SqlTurnStore(engine, RecordedEvents())
    for method in (lambda: store.load("t"), lambda: store.transact("t", one_event), lambda: store.overdue(1, 1.0)):
        with pytest.raises(TransientError, match=r"someone:\*\*\*@127.0.0.1:1/none") as raised:
            method()
        assert "s3cret" not in str(raised.value)
        assert "\n" not in str(raised.value)
    engine.dispose()


def test_store_without_a_free_connection_is_transient(database_url: str):
    """An exhausted pool counts as a database that did not answer in time."""
    engine = make_engine(database_url, timeouts=Timeouts(checkout_s=0.05), pool_size=1)
    store = SqlTurnStore(engine, RecordedEvents())
    held = [engine.connect(), engine.connect()]
    with pytest.raises(TransientError):
        store.load("t")
    for connection in held:
        connection.close()
    assert store.load("t") is None
    engine.dispose()


def test_closed_engine_keeps_no_connection_that_is_given_back(database_url: str):
    """It keeps none that was in use or opened later, because a thread may outlive the shutdown of its process."""
    engine = make_engine(database_url)
    used = engine.connect()
    close(engine)
    for connection in (used, engine.connect()):
        driver: Any = connection.connection.driver_connection
        connection.close()
        with pytest.raises((sqlite3.ProgrammingError, psycopg.OperationalError), match="closed"):
            driver.execute("SELECT 1")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_store_of_an_unmigrated_database_says_what_to_do(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    """Missing tables are a configuration error, whose message names the command to run."""
    url = f"sqlite:///{tmp_path}/empty.db"
    if kind == "postgres":
        url = request.getfixturevalue("postgres_server").create_database()
    engine = make_engine(url)
    store = SqlTurnStore(engine, RecordedEvents())
    for method in (lambda: store.load("t"), lambda: store.insert_turn(new_turn())):
        with pytest.raises(ConfigError, match="harness migrate"):
            method()
    engine.dispose()


def test_dispose_inherited_gives_a_forked_child_connections_of_its_own(world: World):
    """Neither the child's work nor its exit affects the parent's connections."""
    turn_id = world.queued()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        dispose_inherited(world.engine)
        world.store.transact(turn_id, one_event)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    world.store.transact(turn_id, one_event)
    assert world.seqs(turn_id) == [1, 2, 3]


def test_sqlite_reads_while_another_writes(sqlite_url: str):
    """A reader neither waits for the writer nor stops it."""
    with world_of(sqlite_url) as world:
        turn_id = world.queued()
        with world.locked(text("UPDATE turns SET wakes = 9")):
            assert world.turn(turn_id).wakes == 0
            assert world.store.history(turn_id)


def test_sqlite_write_transaction_takes_the_lock_at_its_start(sqlite_url: str):
    """A transaction that starts by reading could not write after another has written, so none starts as a reader."""
    impatient = make_engine(sqlite_url, timeouts=Timeouts(statement_s=0.1))
    with world_of(sqlite_url) as world, world.engine.begin():
        with pytest.raises(OperationalError, match="database is locked"), impatient.begin():
            pass
        with reading(impatient).connect() as reader:
            assert reader.execute(select(turns.c.id)).all() == []
    impatient.dispose()
