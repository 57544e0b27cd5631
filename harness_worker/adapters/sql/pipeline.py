"""Sends several statements at once if the database can take them (Postgres), so that they cost one round trip."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, LiteralString, TypeAlias, cast

import psycopg
from sqlalchemy import Connection, Executable, Select
from sqlalchemy.dialects.postgresql import psycopg as dialect
from sqlalchemy.exc import DBAPIError, OperationalError

from harness_worker.adapters.sql.failures import is_stale

AnySelect: TypeAlias = Select[*tuple[Any, ...]]
Rows: TypeAlias = Sequence[Sequence[Any]]
Write: TypeAlias = tuple[Executable, Sequence[Mapping[str, Any]]]
"""A statement and the rows to execute it with; without rows it is not executed."""

_DIALECT = dialect.dialect()


def fetch(connection: Connection, selects: Sequence[AnySelect], values: Mapping[str, Any]) -> list[Rows]:
    """The rows of several selects, which all get the same ``values``; each sees what was committed before it.

    On Postgres the driver is used directly, because SQLAlchemy would wait for each select's answer. A select is sent as
    text with only ``values``, so constants in it must be a ``literal_column``: any that SQLAlchemy binds are lost.
    """
    if connection.dialect.name != "postgresql":
        return [cast("Rows", connection.execute(select, values).all()) for select in selects]
    if len(selects) == 1:  # a pipeline of one costs more than it saves
        with _driving(connection) as driver:
            return [driver.execute(_sql(selects[0]), values).fetchall()]
    try:
        with _driving(connection) as driver:
            with driver.pipeline():
                cursors = [driver.execute(_sql(select), values) for select in selects]
            return [cursor.fetchall() for cursor in cursors]
    except DBAPIError:  # the driver takes what the server skipped for prepared, and would name it from now on
        connection.invalidate()
        raise


def answer(connection: Connection, statement: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any column's value
    """The first column of the row that a Postgres statement returns; ``None`` if it returns no row."""
    with _driving(connection) as driver:
        row = driver.execute(cast("LiteralString", statement), values).fetchone()
    return None if row is None else row[0]


def execute(connection: Connection, writes: Sequence[Write]) -> None:
    """Execute ``writes`` in order."""
    for statement, rows in writes:
        if rows:
            connection.execute(statement, rows if len(rows) > 1 else rows[0])


@contextmanager
def pipelined(connection: Connection) -> Generator[None]:
    """Within the context statements are sent without waiting; the commit waits for all, and raises if any failed.

    A connection on which one of them failed is dropped: only the server knows how far it got.
    """
    if connection.dialect.name != "postgresql":
        yield
        return
    driver = _driver(connection)
    try:
        with driver.pipeline():
            yield
    except psycopg.Error as error:  # raised by the pipeline itself, out of SQLAlchemy's sight
        raise _as_sqlalchemy_says(connection, driver, error) from error
    except BaseException:
        connection.invalidate()
        raise


@lru_cache(maxsize=64)
def _sql(select: AnySelect) -> LiteralString:
    return cast("LiteralString", str(select.compile(dialect=_DIALECT)))


@contextmanager
def _driving(connection: Connection) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
    """The driver's own connection; its errors become SQLAlchemy's, and any other exception drops the connection."""
    driver = _driver(connection)
    try:
        yield driver
    except psycopg.Error as error:
        raise _as_sqlalchemy_says(connection, driver, error) from error
    except BaseException:  # it may be in the middle of a command
        connection.invalidate()
        raise


def _driver(connection: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    return cast("psycopg.Connection[tuple[Any, ...]]", connection.connection.driver_connection)


def _as_sqlalchemy_says(
    connection: Connection, driver: psycopg.Connection[tuple[Any, ...]], error: psycopg.Error
) -> DBAPIError:
    """The error that SQLAlchemy would raise; after a lost connection the whole pool, which is as old, is dropped."""
    is_lost = driver.closed or is_stale(error)
    if is_lost:
        connection.invalidate(error)
        connection.engine.dispose()
    kind = OperationalError if isinstance(error, psycopg.OperationalError) else DBAPIError
    return kind(None, None, error, connection_invalidated=is_lost)
