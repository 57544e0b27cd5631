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

MOST_BYTES: Final = 8_000_000
"""Of what may be long on one page: a text may be as long as a request's body, and a page is in memory several times."""

OCTET_LENGTH: Final = (3, 43)
"""The first SQLite that knows ``octet_length``, which needs not read the text."""


class octets(FunctionElement[int]):  # noqa: N801 - used like an SQL function
    """How many bytes a text has, or JSON as text; none if it is null."""

    type: TypeEngine[int] = BigInteger()
    inherit_cache = True


@compiles(octets)
def _octets(element: octets, compiler: Any, **options: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    given: Any = next(iter(element.clauses))
    if compiler.dialect.name != "sqlite":
        size: Any = func.octet_length(cast(given, Text))  # of JSON there is none
    elif sqlite3.sqlite_version_info < OCTET_LENGTH:
        size = func.length(cast(given, LargeBinary))
    else:
        size = func.octet_length(given)
    return f"coalesce({compiler.process(size, **options)}, 0)"


def newest_first(rows: AnySelect, table: Table, cursor: Cursor | None, *, is_selective: bool = False) -> AnySelect:
    """``rows`` newest first, after the cursor.

    Args:
        rows: Rows of ``table``.
        table: One with ``created_at`` and ``id``.
        cursor: The last row of the page before.
        is_selective: Whether an index finds the rows, few of the table's: they are found first then, and sorted.
    """
    created_at = _without_index(table.c.created_at) if is_selective else table.c.created_at
    ordered = rows.order_by(created_at.desc(), table.c.id.desc())
    return ordered if cursor is None else ordered.where(_older(created_at, table.c.id, cursor))


def _without_index(column: Column[float]) -> ColumnElement[float]:
    """The column's values, by which no index is walked: none has what stands behind SQL's unary plus.

    Without statistics SQLite would rather walk all of a table in an index's order, so as not to sort, than find a few
    rows by another index (https://www.sqlite.org/optoverview.html#disqualifying_where_clause_terms_using_unary_).
    """
    return literal_column(f"+{column.table.name}.{column.name}", column.type)


def _older(created_at: ColumnElement[float], row_id: Column[Any], cursor: Cursor) -> ColumnElement[bool]:
    # As rows: of two conditions joined by OR no index is a bound, and all the pages before would be read again.
    return tuple_(created_at, row_id) < (cursor.created_at, cursor.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the rows of a page are ordered by: columns of theirs, by name, in one direction."""

    by: Sequence[str]
    is_descending: bool = False

    def of(self, rows: FromClause) -> list[ColumnElement[Any]]:
        """This order, of rows that have the columns."""
        columns = [rows.c[name] for name in self.by]
        return [column.desc() for column in columns] if self.is_descending else [*columns]


AS_LISTED: Final = Order(by=("created_at", "id"), is_descending=True)
"""As :func:`newest_first` has them."""

AS_MADE: Final = Order(by=("id",))
"""What was made later has a later id."""


def within_bytes(page: AnySelect, table: Table, size_bytes: ColumnElement[int], order: Order) -> AnySelect:
    """The first rows of a page, as many as have ``MOST_BYTES`` together; the first one in any case.

    Each says beside its columns how many rows the page has, ``found``. The page is sorted by keys alone; only its own
    rows are sized, because an older SQLite reads a whole text for that; only the chosen rows are read.

    Args:
        page: Columns of the table, ordered and limited.
        table: Which table.
        size_bytes: What of a row may be long, in bytes; see :class:`octets`.
        order: That of the page.
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
    """The cursor behind the rows of a page, if more than these were found."""
    last = shown[-1:]
    return format_cursor(Cursor(created_at=last[0].created_at, id=last[0].id)) if found > len(shown) else None
