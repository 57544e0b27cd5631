"""Memories outlive the turns that they come from."""

from __future__ import annotations

from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: None = None
depends_on: None = None

NAMES = {"fk": "%(table_name)s_%(column_0_name)s_fkey"}
"""As Postgres names what nobody named; SQLite leaves it without a name, by which it is found here."""


def upgrade() -> None:
    """No reference to the turn; on SQLite the table is copied."""
    with op.batch_alter_table("memories", naming_convention=NAMES) as memories:
        memories.drop_constraint("memories_turn_id_fkey", type_="foreignkey")
