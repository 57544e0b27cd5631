"""The scores that judges give to turns that have ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"

IS_DUE = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """Add the table, and an index of the scores that are due."""
    op.create_table(
        "scores",
        sa.Column("turn_id", sa.String(64), sa.ForeignKey("turns.id"), nullable=False),
        sa.Column("judge", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_until", sa.Double),
        sa.Column("due_at", sa.Double),
        sa.Column("score", sa.Double),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("at", sa.Double),
        sa.PrimaryKeyConstraint("turn_id", "judge"),
    )
    op.create_index("scores_due", "scores", ["due_at"], sqlite_where=IS_DUE, postgresql_where=IS_DUE)
