"""Engines for the two databases, with the timeouts that the leases need."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState

from harness_worker.adapters.sql.failures import is_stale
from harness_worker.errors import ConfigError
from harness_worker.urls import masked

POSTGRES_DRIVER: Final = "postgresql+psycopg"
_POSTGRES_NAMES: Final = frozenset({"postgres", "postgresql", POSTGRES_DRIVER})
_READ_ONLY: Final = "harness_read_only"
_AUTOCOMMIT: Final = "harness_autocommit"
_ROLLS_BACK: Final = frozenset({TransactionStatus.INTRANS, TransactionStatus.INERROR})
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long an engine's connections wait, in seconds.

    Args:
        connect_s: For a new connection (Postgres; libpq knows nothing below 2).
        statement_s: For one statement, its waits for locks included. Longer than ``idle_s``, so that who waits for
            a row outlives a stopped process that holds it (Postgres).
        idle_s: A transaction that is idle for longer is ended by Postgres; below the lease of a turn.
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
"""For heartbeats: give up soon, the next beat follows."""

_IDLE_SHARE: Final = 5 / 6


def within(lease_ttl_s: float) -> Timeouts:
    """For work under leases of ``lease_ttl_s`` seconds: who stands still in a transaction loses it before its lease."""
    return replace(WORK, idle_s=min(WORK.idle_s, lease_ttl_s * _IDLE_SHARE))


def make_engine(url: str, *, timeouts: Timeouts = WORK, pool_size: int = 10) -> Engine:
    """An engine for ``sqlite:///FILE`` or ``postgresql://…``; connects to nothing yet.

    On SQLite every transaction takes the write lock at once, except those of :func:`reading`: a transaction that
    starts as a reader and then writes fails when another wrote meanwhile.

    Raises:
        ConfigError: The URL is of another kind, or none.
    """
    parsed = parse_url(url)
    if parsed.drivername == "sqlite":
        return _sqlite_engine(parsed, timeouts, pool_size)
    return _postgres_engine(parsed, timeouts, pool_size)


def parse_url(url: str) -> URL:
    """The URL with the driver the harness uses.

    Raises:
        ConfigError: It is not a URL of SQLite or Postgres; the message shows no password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter of a port
        raise ConfigError("HARNESS_DATABASE_URL is not a URL; use sqlite:///FILE or postgresql://…") from None
    if "@" in (parsed.host or ""):  # the host would be told, and is a part of the password
        raise ConfigError("HARNESS_DATABASE_URL has two @; write that of its password as %40")
    if parsed.drivername in _POSTGRES_NAMES:
        return parsed.set(drivername=POSTGRES_DRIVER)
    if parsed.drivername == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed
    shown = masked(str(parsed))
    raise ConfigError(f"HARNESS_DATABASE_URL={shown}: use sqlite:///FILE or postgresql://…")


def reading(engine: Engine) -> Engine:
    """A view of ``engine`` for transactions that only read: no write lock, no round trips for BEGIN and COMMIT."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_READ_ONLY: True})
    return engine.get_execution_options()[_AUTOCOMMIT]


def dispose_inherited(engine: Engine) -> None:
    """Forget the connections a forked child got from its parent, without closing the parent's sockets."""
    engine.dispose(close=False)


def _sqlite_engine(url: URL, timeouts: Timeouts, pool_size: int) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": timeouts.lock_s, "check_same_thread": False},
        json_serializer=_encode,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=timeouts.checkout_s,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's connection
    connection.isolation_level = None  # the driver shall start no transactions of its own
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    only_reads = connection.get_execution_options().get(_READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


def _postgres_engine(url: URL, timeouts: Timeouts, pool_size: int) -> Engine:
    # What only reads, and a commit in one statement, take a connection as it is; a transaction changes it and back.
    plain = create_engine(
        url,
        connect_args=_postgres_arguments(url, timeouts),
        isolation_level="AUTOCOMMIT",
        json_serializer=_encode,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=timeouts.checkout_s,
        pool_use_lifo=True,
        use_native_hstore=False,
        skip_autocommit_rollback=True,
    )
    event.listen(plain, "reset", _drop_unfinished)
    event.listen(plain, "handle_error", _drop_stale)
    return plain.execution_options(isolation_level="READ COMMITTED", **{_AUTOCOMMIT: plain})


def _drop_unfinished(driver: Any, record: ConnectionPoolEntry, state: PoolResetState) -> None:  # noqa: ANN401 - psycopg's
    """Take no connection back that somebody left in the midst of a command: it would refuse every later one.

    Whatever is raised while the driver waits leaves it so, a tool's soft deadline for one: the driver tidies up after
    an exit alone, and what commits by itself is not rolled back.
    """
    status = driver.info.transaction_status
    is_over = status == TransactionStatus.IDLE and driver.pgconn.pipeline_status == PipelineStatus.OFF
    is_ended_next = status in _ROLLS_BACK and not driver.autocommit and not state.transaction_was_reset
    if not is_over and not is_ended_next:
        record.invalidate()


def _drop_stale(context: ExceptionContext) -> None:
    """Connect anew after a failover: the connections of before still answer, and would refuse each write for ever."""
    if is_stale(context.original_exception):
        context.is_disconnect = True


def _postgres_arguments(url: URL, timeouts: Timeouts) -> dict[str, Any]:
    options = {
        "statement_timeout": round(timeouts.statement_s * 1000),
        "idle_in_transaction_session_timeout": round(timeouts.idle_s * 1000),
        "jit": "off",
    }
    ours = " ".join(f"-c {name}={value}" for name, value in options.items())
    given = url.query.get("options", "")
    theirs = given if isinstance(given, str) else " ".join(given)
    arguments: dict[str, Any] = {"options": f"{ours} {theirs}".strip()}  # what the URL says comes last and wins
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = timeouts.connect_s
    return arguments
