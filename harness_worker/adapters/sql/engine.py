"""Engines for both databases, with the timeouts that leases require."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState

from harness_worker.adapters.sql.failures import is_stale
from harness_worker.databases import (
    AnsweredConnection,
    connect_anew_after,
    parse_url,
    postgres_arguments,
    prepare_sqlite,
)
from harness_worker.errors import ConfigError
from harness_worker.schema import give_clock

_READ_ONLY: Final = "harness_read_only"
_READER: Final = "harness_reader"
_ROLLS_BACK: Final = frozenset({TransactionStatus.INTRANS, TransactionStatus.INERROR})
to_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long an engine's connections wait, in seconds.

    Args:
        connect_s: For a new connection (Postgres; libpq allows no less than 2).
        statement_s: For one statement, including its waits for locks (Postgres). It is longer than ``idle_s``, so that
            a process that waits for a row outlasts a stopped one that holds it. The server ends the statement; without
            an answer the connection counts as lost a second later.
        idle_s: How long a transaction may be idle before Postgres ends it; shorter than the lease of a turn.
        lock_s: For the write lock of SQLite.
        checkout_s: For a free connection of the pool.
    """

    connect_s: int = 3
    statement_s: float = 10.0
    idle_s: float = 5.0
    lock_s: float = 5.0
    checkout_s: float = 10.0


WORK: Final = Timeouts()
BEAT: Final = Timeouts(connect_s=2, statement_s=1.0, idle_s=1.0, lock_s=1.0, checkout_s=1.0)
"""For heartbeats: they give up soon, because the next one follows."""

_IDLE_SHARE: Final = 5 / 6


def timeouts_within(lease_ttl_s: float) -> Timeouts:
    """For work under leases of ``lease_ttl_s`` seconds: a process that hangs loses its transaction before its lease."""
    return replace(WORK, idle_s=min(WORK.idle_s, lease_ttl_s * _IDLE_SHARE))


def make_engine(url: str, *, timeouts: Timeouts = WORK, pool_size: int = 10, durable: bool = True) -> Engine:
    """An engine for ``sqlite:///FILE`` or ``postgresql://…`` that connects when first used.

    On SQLite every transaction takes the write lock at once, except those of :func:`reading`: a transaction that
    reads first and writes later fails if another has written meanwhile.

    Args:
        url: The database.
        timeouts: How long its connections wait.
        pool_size: How many connections it keeps.
        durable: Whether SQLite syncs each commit to the disk, which a file that ends with its process does not need.

    Raises:
        ConfigError: It is another kind of URL, or not a URL.
    """
    parsed = parse_url(url)
    if parsed.drivername == "sqlite":
        return _sqlite_engine(parsed, timeouts, pool_size, durable=durable)
    return _postgres_engine(parsed, timeouts, pool_size)


def reading(engine: Engine) -> Engine:
    """A view of ``engine`` for transactions that only read: no write lock, no round trips for BEGIN and COMMIT."""
    return engine.get_execution_options()[_READER]


def dispose_inherited(engine: Engine) -> None:
    """Forget the connections that a forked child inherited, without closing the parent's sockets."""
    engine.dispose(close=False)


def close(engine: Engine) -> None:
    """Close every connection; those still in use by other threads are closed as soon as they are given back."""
    event.listen(engine.pool, "checkin", _close_returned)
    engine.dispose()


def close_for_good(engine: Engine) -> None:
    """The same, and refuse new connections: they would make the file of a removed SQLite database anew.

    Whoever asks for one gets a ``ConfigError``.
    """
    event.listen(engine, "do_connect", _refuse, insert=True)
    close(engine)


def _refuse(*_arguments: object) -> NoReturn:
    raise ConfigError("the database was closed")


def _close_returned(_driver: object, record: ConnectionPoolEntry) -> None:
    record.invalidate()


def _sqlite_engine(url: URL, timeouts: Timeouts, pool_size: int, *, durable: bool) -> Engine:
    # isolation_level None: the driver must leave BEGIN to this module.
    engine = create_engine(
        url,
        connect_args={"isolation_level": None, "timeout": timeouts.lock_s, "check_same_thread": False},
        json_serializer=to_json,
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=timeouts.checkout_s,
    )
    event.listen(engine, "connect", prepare_sqlite)
    event.listen(engine, "connect", give_clock)
    event.listen(engine, "begin", _begin_sqlite)
    if not durable:
        event.listen(engine, "connect", _sync_nothing)
    engine.update_execution_options(**{_READER: engine.execution_options(**{_READ_ONLY: True})})
    return engine


def _sync_nothing(driver: Any, _record: object) -> None:  # noqa: ANN401 - the driver's own type
    driver.execute("PRAGMA synchronous=OFF")


def _begin_sqlite(connection: Connection) -> None:
    only_reads = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


def _postgres_engine(url: URL, timeouts: Timeouts, pool_size: int) -> Engine:
    # Reads, and commits in one statement, use a connection as it is; a transaction switches its mode and back.
    plain = create_engine(
        url,
        connect_args=_postgres_arguments(url, timeouts),
        isolation_level="AUTOCOMMIT",
        json_serializer=to_json,
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=timeouts.checkout_s,
        pool_use_lifo=True,
        use_native_hstore=False,
        skip_autocommit_rollback=True,
    )
    event.listen(plain, "do_connect", _connect)
    event.listen(plain, "reset", _drop_unfinished)
    connect_anew_after(plain, is_stale)
    return plain.execution_options(isolation_level="READ COMMITTED", **{_READER: plain})


def _connect(_dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]) -> AnsweredConnection:
    return AnsweredConnection.connected(*arguments, **options)


def _drop_unfinished(driver: Any, record: ConnectionPoolEntry, state: PoolResetState) -> None:  # noqa: ANN401 - psycopg's
    """Drop a connection that was left in the middle of a command: it would refuse every later one.

    Any exception raised while the driver waits, such as a tool's soft deadline, can leave it so: the driver cleans up
    only after an exit, and in autocommit mode nothing is rolled back.
    """
    status = driver.info.transaction_status
    is_over = status == TransactionStatus.IDLE and driver.pgconn.pipeline_status == PipelineStatus.OFF
    is_ended_next = status in _ROLLS_BACK and not driver.autocommit and not state.transaction_was_reset
    if not is_over and not is_ended_next:
        record.invalidate()


def _postgres_arguments(url: URL, timeouts: Timeouts) -> dict[str, Any]:
    options = {
        "statement_timeout": round(timeouts.statement_s * 1000),
        "idle_in_transaction_session_timeout": round(timeouts.idle_s * 1000),
        "jit": "off",
    }
    return postgres_arguments(url, options=options, connect_timeout=timeouts.connect_s)
