"""Memories of users, and the citations of answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"


def upgrade() -> None:
    """Add the table and the column; existing answers cite nothing."""
    op.add_column("turns", sa.Column("citations", sa.JSON(none_as_null=True)))
    op.create_table(
        "memories",
        sa.Column("turn_id", sa.String(64), sa.ForeignKey("turns.id"), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("scope", sa.String(640), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("turn_id", "position"),
    )
    op.create_index("memories_scope", "memories", ["tenant", "scope", "created_at"])
