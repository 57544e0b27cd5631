"""The gateway's connection to SQL: SQLite or Postgres, async."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import URL, Connection, Row, Select, event, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from harness_worker.databases import (
    connect_anew_after,
    is_read_only,
    longest_answer_s,
    parse_url,
    postgres_arguments,
    prepare_sqlite,
)
from harness_worker.schema import give_clock, metadata, turns

AnySelect: TypeAlias = Select[*tuple[Any, ...]]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]

_WRITES: Final = "harness_writes"
"""Execution option of connections whose transactions write."""

BUSY_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5
POOL_SIZE: Final = 10
POOL_TIMEOUT_S: Final = 15.0
"""How long a request waits in line for a connection when very many came at once: longer than hundreds of posts take."""

IDLE_S: Final = 5
"""Postgres ends a transaction of a gateway that stands still for longer: it may hold a turn's row."""

STATEMENT_S: Final = 30
"""Postgres ends a gateway's statement that takes longer, waits for locks included: its client may try again. A second
later a connection that was not answered is lost."""

T = TypeVar("T")
_to_json: Final = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))


class AnsweredConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection to Postgres that is lost when an answer does not come in time; see ``longest_answer_s``."""

    answer_s: float | None = None
    """The longest that a statement, a commit or a rollback may take, in seconds."""

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ASYNC109 - the driver's own signature
        """As the driver waits, with a limit.

        Raises:
            OperationalError: No answer came in time, or the connection was lost; either way it is closed.
        """
        try:
            return await super().wait(gen, interval, self.answer_s if timeout is None else timeout)
        except psycopg.OperationalError as error:
            if error.sqlstate is None and timeout is None:
                self.pgconn.finish()  # not close(): a connection that is broken is one that was lost
            raise


def create_engine(database_url: str) -> AsyncEngine:
    """An engine for ``sqlite:///FILE`` or ``postgresql://…`` that connects when first used.

    Raises:
        ConfigError: The URL is of another kind, or none.
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
        connect_args={"async_creator_fn": _connect, **_postgres_arguments(url)},
    )
    connect_anew_after(engine.sync_engine, is_read_only)
    return engine


def writer_of(engine: AsyncEngine) -> AsyncEngine:
    """A view of the engine for transactions that write."""
    return engine.execution_options(**{_WRITES: True})


async def check_tables(engine: AsyncEngine) -> None:
    """Read from every table, one of them as if to write.

    Raises SQLAlchemy's error if one is missing, or the database does not answer or only reads: ``SELECT … FOR UPDATE``
    is refused by a Postgres that does, as a write would be, and connections to it are dropped then.
    """
    async with engine.connect() as connection:
        await connection.execute(select(turns.c.id).limit(0).with_for_update())
        for table in metadata.sorted_tables:
            await connection.execute(select(table).limit(0))


async def _connect(*arguments: Any, **options: Any) -> AnsweredConnection:  # noqa: ANN401 - the driver's own signature
    connection = await AnsweredConnection.connect(*arguments, **options)
    connection.answer_s = longest_answer_s(options["options"])
    return connection


def _postgres_arguments(url: URL) -> dict[str, Any]:
    options = {"idle_in_transaction_session_timeout": f"{IDLE_S}s", "statement_timeout": f"{STATEMENT_S}s"}
    return postgres_arguments(
        url, options=options, connect_timeout=CONNECT_TIMEOUT_S, application_name="harness-gateway"
    )


def _sqlite(url: URL) -> AsyncEngine:
    # isolation_level None: the driver leaves BEGIN to us.
    engine = create_async_engine(
        url.set(drivername="sqlite+aiosqlite"),
        pool_size=POOL_SIZE,
        pool_timeout=POOL_TIMEOUT_S,
        json_serializer=_to_json,
        hide_parameters=True,
        connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_S},
    )
    event.listen(engine.sync_engine, "connect", prepare_sqlite)
    event.listen(engine.sync_engine, "connect", give_clock)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    """Take the write lock at once: a read that turns into a write fails when another writer was faster."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
