"""Webhooks: whom to tell that a turn has ended or waits for a person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"

IS_DUE = sa.text("due_at IS NOT NULL")


def upgrade() -> None:
    """Add the table, and an index of the webhooks that are not done."""
    op.create_table(
        "webhooks",
        sa.Column("turn_id", sa.String(64), sa.ForeignKey("turns.id"), primary_key=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("told_seq", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double),
        sa.Column("lease_until", sa.Double),
        sa.Column("status_code", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("at", sa.Double),
    )
    op.create_index("webhooks_due", "webhooks", ["due_at"], sqlite_where=IS_DUE, postgresql_where=IS_DUE)
