"""The gateway's connection to SQL: SQLite or Postgres, async."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, event, select
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from harness_worker.errors import ConfigError
from harness_worker.schema import metadata

WRITES: Final = "harness_writes"
"""Execution option of connections whose transactions write."""

BUSY_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5
POOL_SIZE: Final = 10
POOL_TIMEOUT_S: Final = 15.0
"""How long a request waits in line for a connection when very many came at once: longer than hundreds of posts take."""

IDLE_S: Final = 5
"""Postgres ends a transaction of a gateway that stands still for longer: it may hold a turn's row."""

STATEMENT_S: Final = 30
"""Postgres ends a gateway's statement that takes longer, waits for locks included: its client may try again."""

READ_ONLY: Final = "25006"
"""Postgres' SQLSTATE of a write to a server that only reads, as one does that another has taken over from."""

_to_json: Final = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))


def async_url(database_url: str) -> URL:
    """``database_url`` with the async driver for its kind of database.

    Raises:
        ConfigError: It is no URL of SQLite or Postgres.
    """
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):  # the latter of a port
        raise ConfigError("HARNESS_DATABASE_URL is not a URL: give sqlite:///FILE or postgresql://…") from None
    if "@" in (url.host or ""):  # the host would be told, and is a part of the password
        raise ConfigError("HARNESS_DATABASE_URL has two @: write that of its password as %40")
    kind = url.drivername.partition("+")[0]
    if kind == "sqlite":
        return url.set(drivername="sqlite+aiosqlite")
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError(f"HARNESS_DATABASE_URL={kind}://…: give sqlite:///FILE or postgresql://…")


def create_engine(database_url: str) -> AsyncEngine:
    """An engine that connects when first used."""
    url = async_url(database_url)
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    engine = create_async_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        pool_pre_ping=True,
        pool_timeout=POOL_TIMEOUT_S,
        json_serializer=_to_json,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "harness-gateway",
            "options": _options(url),
        },
    )
    event.listen(engine.sync_engine, "handle_error", _leave_a_server_that_only_reads)
    return engine


async def check_tables(engine: AsyncEngine) -> None:
    """Read from every table; raises SQLAlchemy's error if one is missing or the database does not answer."""
    async with engine.connect() as connection:
        for table in metadata.sorted_tables:
            await connection.execute(select(table).limit(0))


def _leave_a_server_that_only_reads(context: ExceptionContext) -> None:
    """Connect anew after a failover: the connections of before still answer, and would refuse each write for ever."""
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True


def _options(url: URL) -> str:
    given = url.query.get("options", "")
    theirs = given if isinstance(given, str) else " ".join(given)
    ours = f"-c idle_in_transaction_session_timeout={IDLE_S}s -c statement_timeout={STATEMENT_S}s"
    return f"{ours} {theirs}".strip()  # what the URL says comes last and wins


def _sqlite(url: URL) -> AsyncEngine:
    # isolation_level None: the driver leaves BEGIN to us.
    engine = create_async_engine(
        url,
        pool_size=POOL_SIZE,
        pool_timeout=POOL_TIMEOUT_S,
        json_serializer=_to_json,
        connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_S},
    )
    event.listen(engine.sync_engine, "connect", _use_wal)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _use_wal(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's connection
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Take the write lock at once: a read that turns into a write fails when another writer was faster."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
