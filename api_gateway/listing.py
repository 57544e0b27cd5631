"""Pages of rows, newest first, stable while rows are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Column, ColumnElement, Row, Select, Table, and_, or_

from api_gateway.cursors import Cursor, format_cursor

AnySelect: TypeAlias = Select[*tuple[Any, ...]]
AnyRow: TypeAlias = Row[*tuple[Any, ...]]


def newest_first(rows: AnySelect, table: Table, cursor: Cursor | None) -> AnySelect:
    """``rows`` newest first, after the cursor; ``table`` has ``created_at`` and ``id``."""
    ordered = rows.order_by(table.c.created_at.desc(), table.c.id.desc())
    return ordered if cursor is None else ordered.where(_older(table.c.created_at, table.c.id, cursor))


def _older(created_at: Column[Any], row_id: Column[Any], cursor: Cursor) -> ColumnElement[bool]:
    same = and_(created_at == cursor.created_at, row_id < cursor.id)
    return or_(created_at < cursor.created_at, same)


def next_of(rows: Sequence[AnyRow], limit: int) -> str | None:
    """The cursor behind the first ``limit`` rows, if there are more."""
    last = rows[limit - 1 : limit]
    return format_cursor(Cursor(created_at=last[0].created_at, id=last[0].id)) if rows[limit:] else None
