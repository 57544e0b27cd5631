"""Pages of rows: newest first, stable while rows are added, and bounded in bytes as well as in number."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    LargeBinary,
    Subquery,
    Table,
    Text,
    and_,
    cast,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from api_gateway.database import AnyRow, AnySelect
from api_gateway.requests.cursors import Cursor, format_cursor
from api_gateway.requests.queries import PageQuery

MOST_BYTES: Final = 8_000_000
"""Bytes that the long values of one page may have: a text may be as long as a request's body, and a page is in memory
several times."""

OCTET_LENGTH: Final = (3, 43)
"""The first version of SQLite with ``octet_length``, which need not read the text."""


class octets(FunctionElement[int]):  # noqa: N801 - used like an SQL function
    """How many bytes a text has, or JSON as text; 0 if it is null."""

    type: TypeEngine[int] = BigInteger()
    inherit_cache = True


@compiles(octets)
def _octets(element: octets, compiler: Any, **options: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    given: Any = next(iter(element.clauses))
    if compiler.dialect.name != "sqlite":
        size: Any = func.octet_length(cast(given, Text))  # JSON has no octet_length
    elif sqlite3.sqlite_version_info < OCTET_LENGTH:
        size = func.length(cast(given, LargeBinary))
    else:
        size = func.octet_length(given)
    return f"coalesce({compiler.process(size, **options)}, 0)"


def newest_first(rows: AnySelect, table: Table, query: PageQuery, *, is_selective: bool = False) -> AnySelect:
    """A page of ``rows``, newest first, and one row more, which shows that others follow.

    Args:
        rows: Rows of ``table``.
        table: A table with ``created_at`` and ``id``.
        query: Which page.
        is_selective: Whether an index finds the rows and they are few of the table's: then they are sorted once found.
    """
    created_at = _without_index(table.c.created_at) if is_selective else table.c.created_at
    page = rows.order_by(created_at.desc(), table.c.id.desc()).limit(query.limit + 1)
    return page if query.cursor is None else page.where(_older(created_at, table.c.id, query.cursor))


def _without_index(column: Column[float]) -> ColumnElement[float]:
    """The column's values, written so that no index is walked by them: with SQL's unary plus before the column.

    Without statistics SQLite would walk the whole table in an index's order, to avoid sorting, rather than find a few
    rows by another index (https://www.sqlite.org/optoverview.html#disqualifying_where_clause_terms_using_unary_).
    """
    return literal_column(f"+{column.table.name}.{column.name}", column.type)


def _older(created_at: ColumnElement[float], row_id: Column[Any], cursor: Cursor) -> ColumnElement[bool]:
    # A row comparison: with two conditions joined by OR no index bounds the scan, and all pages before are read again.
    return tuple_(created_at, row_id) < (cursor.created_at, cursor.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The columns that the rows of a page are ordered by, by name, all in one direction."""

    by: Sequence[str]
    is_descending: bool = False

    def of(self, rows: FromClause) -> list[ColumnElement[Any]]:
        """This order as an ``ORDER BY`` of rows that have the columns."""
        columns = [rows.c[name] for name in self.by]
        return [column.desc() for column in columns] if self.is_descending else [*columns]


AS_LISTED: Final = Order(by=("created_at", "id"), is_descending=True)
"""The order of :func:`newest_first`."""

AS_MADE: Final = Order(by=("id",))
"""The order in which rows were made: later ones have later ids."""


def within_bytes(page: AnySelect, table: Table, size_bytes: ColumnElement[int], order: Order) -> AnySelect:
    """The first rows of a page, as many as fit into ``MOST_BYTES``, but at least one.

    Besides its columns each row has ``found``, how many rows the whole page has. The page is sorted by keys alone; only
    its own rows are sized, because an older SQLite reads a whole text to size it; only the chosen rows are read.

    Args:
        page: Columns of the table, ordered and limited.
        table: Which table.
        size_bytes: The size of a row's long values, in bytes; see :class:`octets`.
        order: The page's order.
    """
    keys = [column.name for column in table.primary_key]
    names = dict.fromkeys((*keys, *order.by))
    listed = page.with_only_columns(*(table.c[name] for name in names)).subquery("listed")
    sized = (
        select(listed, size_bytes.label("bytes")).join_from(listed, table, _is_same(listed, table)).subquery("sized")
    )
    by = order.of(sized)
    chosen = select(
        *(sized.c[name] for name in keys),
        func.row_number().over(order_by=by).label("place"),
        func.sum(sized.c.bytes).over(order_by=by).label("bytes"),
        func.count().over().label("found"),
    ).subquery("chosen")
    rows = select(*page.selected_columns, chosen.c.found).join_from(chosen, table, _is_same(chosen, table))
    return rows.where(or_(chosen.c.place == 1, chosen.c.bytes <= MOST_BYTES)).order_by(chosen.c.place)


def _is_same(rows: Subquery, table: Table) -> ColumnElement[bool]:
    return and_(*(table.c[column.name] == rows.c[column.name] for column in table.primary_key))


def next_of(shown: Sequence[AnyRow], found: int) -> str | None:
    """The cursor to continue after the rows shown, if more than these were found."""
    last = shown[-1:]
    return format_cursor(Cursor(created_at=last[0].created_at, id=last[0].id)) if found > len(shown) else None
