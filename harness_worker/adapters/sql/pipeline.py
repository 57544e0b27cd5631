"""Sends several statements at once where the database can (Postgres), so that they cost one round trip."""

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
"""A statement and the rows it is executed with; none at all is nothing to do."""

_DIALECT = dialect.dialect()


def fetch(connection: Connection, selects: Sequence[AnySelect], values: Mapping[str, Any]) -> list[Rows]:
    """The rows of each of several selects, which all get the same ``values``; each sees what was committed before it.

    On Postgres the driver is asked directly: SQLAlchemy would wait for each select's answer. A select is sent as its
    text and ``values`` alone, so a constant in it must be a ``literal_column``: one that SQLAlchemy binds is left out.
    """
    if connection.dialect.name != "postgresql":
        return [cast("Rows", connection.execute(select, values).all()) for select in selects]
    with _driving(connection) as driver:
        if len(selects) == 1:  # a pipeline of one costs more than it saves
            return [driver.execute(_sql(selects[0]), values).fetchall()]
        with driver.pipeline():
            cursors = [driver.execute(_sql(select), values) for select in selects]
        return [cursor.fetchall() for cursor in cursors]


def answer(connection: Connection, statement: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any column's value
    """The first column of the one row that a statement of Postgres returns."""
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
    """Within the context statements are sent without waiting; the commit waits for all of them and raises for any.

    A connection on which one of them failed is given up: how far it got is then known to the server alone.
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
    """The driver's own connection; its errors become SQLAlchemy's, and whatever else ends it ends the connection."""
    driver = _driver(connection)
    try:
        yield driver
    except psycopg.Error as error:
        raise _as_sqlalchemy_says(connection, driver, error) from error
    except BaseException:  # it may be in the midst of a command
        connection.invalidate()
        raise


def _driver(connection: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    return cast("psycopg.Connection[tuple[Any, ...]]", connection.connection.driver_connection)


def _as_sqlalchemy_says(
    connection: Connection, driver: psycopg.Connection[tuple[Any, ...]], error: psycopg.Error
) -> DBAPIError:
    """What SQLAlchemy would raise: a lost connection takes all of the pool, which is as old, with it."""
    is_lost = driver.closed or is_stale(error)
    if is_lost:
        connection.invalidate(error)
        connection.engine.dispose()
    kind = OperationalError if isinstance(error, psycopg.OperationalError) else DBAPIError
    return kind(None, None, error, connection_invalidated=is_lost)
