"""Memories outlive the turns that they come from."""

from __future__ import annotations

from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"

NAMES = {"fk": "%(table_name)s_%(column_0_name)s_fkey", "pk": "%(table_name)s_pkey"}
"""The names that Postgres gives to constraints without one. SQLite gives none: there, Alembic finds them by these."""


def upgrade() -> None:
    """Drop the reference to the turn, whose id may be used again; on SQLite the table is copied."""
    with op.batch_alter_table("memories", naming_convention=NAMES) as memories:
        memories.drop_constraint("memories_turn_id_fkey", type_="foreignkey")
        memories.drop_constraint("memories_pkey", type_="primary")
        memories.create_primary_key("memories_pkey", ["turn_id", "position", "created_at"])
