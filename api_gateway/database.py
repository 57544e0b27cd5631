"""The gateway's connection to SQL: SQLite or Postgres, async."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import URL, Connection, Engine, Row, Select, event, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from harness_worker.databases import (
    AsyncAnsweredConnection,
    connect_anew_after,
    is_read_only,
    parse_url,
    postgres_arguments,
    prepare_sqlite,
)
from harness_worker.schema import give_clock, metadata, turns

AnySelect: TypeAlias = Select[*tuple[Any, ...]]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]

_WRITER: Final = "harness_writer"
"""The execution option with the engine for transactions that write, if that is another one."""

CONNECT_TIMEOUT_S: Final = 5
POOL_SIZE: Final = 10
POOL_TIMEOUT_S: Final = 15.0
"""How long a request waits for a free connection during a rush, in seconds: longer than hundreds of posts take."""

BUSY_TIMEOUT_S: Final = 15.0
"""How long a transaction waits for SQLite's write lock, in seconds, and before that for one of the connections that
write. SQLite gives its lock to those who wait in no order, and a few of many would wait many times as long as the
others; for a connection they wait in line. With far fewer connections, the workers would get the lock too often."""

IDLE_S: Final = 5
"""How long a gateway's transaction may be idle before Postgres ends it, in seconds: it may hold a turn's row."""

STATEMENT_S: Final = 30
"""How long a gateway's statement may take before Postgres ends it, in seconds, including waits for locks; the client
may try again. A second later a connection without an answer counts as lost."""

CHUNK: Final = 500
"""The most rows of one statement; between statements the event loop serves other requests."""

T = TypeVar("T")
_to_json: Final = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))


def create_engine(database_url: str) -> AsyncEngine:
    """An engine for ``sqlite:///FILE`` or ``postgresql://…`` that connects when first used.

    Raises:
        ConfigError: It is another kind of URL, or not a URL.
    """
    url = parse_url(database_url)
    if url.get_backend_name() == "sqlite":
        return _sqlite(url)
    engine = create_async_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=POOL_SIZE,
        pool_pre_ping=True,
        pool_timeout=POOL_TIMEOUT_S,
        json_serializer=_to_json,
        hide_parameters=True,
        connect_args={"async_creator_fn": AsyncAnsweredConnection.connected, **_postgres_arguments(url)},
    )
    connect_anew_after(engine.sync_engine, is_read_only)
    return engine


def chunks_of(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """``items`` in pieces of at most ``size``, for a statement each."""
    return (items[first : first + size] for first in range(0, len(items), size))


def writer_of(engine: AsyncEngine) -> AsyncEngine:
    """The engine for transactions that write."""
    return engine.get_execution_options().get(_WRITER, engine)


async def check_tables(engine: AsyncEngine) -> None:
    """Check that every table can be read, and that the database takes writes.

    Raises SQLAlchemy's error if a table is missing, or if the database does not answer or is read-only: a read-only
    Postgres refuses ``SELECT … FOR UPDATE`` as it would a write, and connections to it are then dropped.
    """
    async with engine.connect() as connection:
        await connection.execute(select(turns.c.id).limit(0).with_for_update())
        for table in metadata.sorted_tables:
            await connection.execute(select(table).limit(0))


def _postgres_arguments(url: URL) -> dict[str, Any]:
    options = {"idle_in_transaction_session_timeout": f"{IDLE_S}s", "statement_timeout": f"{STATEMENT_S}s"}
    return postgres_arguments(
        url, options=options, connect_timeout=CONNECT_TIMEOUT_S, application_name="harness-gateway"
    )


def _sqlite(url: URL) -> AsyncEngine:
    reader = _sqlite_engine(url, _begin, pool_size=POOL_SIZE, pool_timeout=POOL_TIMEOUT_S)
    writer = _sqlite_engine(url, _begin_to_write, pool_size=POOL_SIZE, max_overflow=0, pool_timeout=BUSY_TIMEOUT_S)

    def dispose(_reader: Engine) -> None:
        writer.sync_engine.dispose()

    event.listen(reader.sync_engine, "engine_disposed", dispose)
    return reader.execution_options(**{_WRITER: writer})


def _sqlite_engine(url: URL, begin: Callable[[Connection], None], **pool: float) -> AsyncEngine:
    # isolation_level None: the driver must leave BEGIN to this module.
    engine = create_async_engine(
        url.set(drivername="sqlite+aiosqlite"),
        **pool,
        json_serializer=_to_json,
        hide_parameters=True,
        connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_S},
    )
    event.listen(engine.sync_engine, "connect", prepare_sqlite)
    event.listen(engine.sync_engine, "connect", give_clock)
    event.listen(engine.sync_engine, "begin", begin)
    return engine


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_to_write(connection: Connection) -> None:
    """Take the write lock at once: a transaction that reads before it writes fails if another writer is faster."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
