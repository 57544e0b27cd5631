"""Forks: the turn and the step that a turn continues from, and a copy of the session before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"


def upgrade() -> None:
    """Existing turns are no forks."""
    op.add_column("turns", sa.Column("forked_from", sa.String(64)))
    op.add_column("turns", sa.Column("first_step", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "past_turns",
        sa.Column("turn_id", sa.String(64), sa.ForeignKey("turns.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("output_text", sa.Text, nullable=False),
        sa.Column("preparation", sa.JSON),
        sa.PrimaryKeyConstraint("turn_id", "number"),
    )
    op.create_table(
        "past_messages",
        sa.Column("turn_id", sa.String(64), sa.ForeignKey("turns.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("turn_id", "number", "position"),
    )
