"""Pages of rows, newest first, stable while rows are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, ColumnElement, Row, Select, Table, and_, literal_column, or_

from api_gateway.cursors import Cursor, format_cursor

AnySelect: TypeAlias = Select[*tuple[Any, ...]]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]


def newest_first(rows: AnySelect, table: Table, cursor: Cursor | None, *, few: bool = False) -> AnySelect:
    """``rows`` newest first, after the cursor; ``table`` has ``created_at`` and ``id``.

    ``few``: the conditions on ``rows`` leave few of the table's, by an index; so they are found first and sorted then.
    A database that does not know it (SQLite has no statistics) would rather walk all rows in their order.
    """
    created_at: ColumnElement[float] = table.c.created_at
    if few:  # no index has the values behind a plus, so none is walked for them
        created_at = literal_column(f"+{table.name}.created_at", created_at.type)
    ordered = rows.order_by(created_at.desc(), table.c.id.desc())
    return ordered if cursor is None else ordered.where(_older(created_at, table.c.id, cursor))


def _older(created_at: ColumnElement[float], row_id: Column[Any], cursor: Cursor) -> ColumnElement[bool]:
    same = and_(created_at == cursor.created_at, row_id < cursor.id)
    return or_(created_at < cursor.created_at, same)


def next_of(rows: Sequence[AnyRow], limit: int) -> str | None:
    """The cursor behind the first ``limit`` rows, if there are more."""
    last = rows[limit - 1 : limit]
    return format_cursor(Cursor(created_at=last[0].created_at, id=last[0].id)) if rows[limit:] else None
