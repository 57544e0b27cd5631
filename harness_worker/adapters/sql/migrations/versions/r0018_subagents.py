"""Turns that are calls of other turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | None = "0017"

_CHILD = sa.text("parent_id IS NOT NULL")


def upgrade() -> None:
    """Existing turns have no parent."""
    op.add_column("turns", sa.Column("parent_id", sa.String(64)))
    op.add_column("turns", sa.Column("parent_call_id", sa.String(32)))
    op.add_column("turns", sa.Column("delegated", sa.JSON()))
    op.add_column("tool_calls", sa.Column("delegation", sa.JSON()))
    op.create_index("turns_children", "turns", ["parent_id"], sqlite_where=_CHILD, postgresql_where=_CHILD)
