"""Batches: turns that were posted together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"

OF_A_BATCH = sa.text("batch_id IS NOT NULL")


def upgrade() -> None:
    """Existing turns belong to none, nor do those that older workers and gateways add."""
    op.create_table(
        "batches",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_index("batches_listed", "batches", ["tenant", "created_at", "id"])
    op.add_column("turns", sa.Column("batch_id", sa.String(64)))
    op.add_column("turns", sa.Column("custom_id", sa.String(64)))
    op.create_index("turns_batch", "turns", ["batch_id", "id"], sqlite_where=OF_A_BATCH, postgresql_where=OF_A_BATCH)
