"""The index of turns that have not ended, by priority, too: waiting turns of a tenant get room in that order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0019"
down_revision: str | None = "0018"

OPEN = sa.text("finished_at IS NULL")


def upgrade() -> None:
    """By tenant and status, then priority, oldest first."""
    op.drop_index("turns_open", "turns")
    columns = ["tenant", "status", "priority", "created_at"]
    op.create_index("turns_open", "turns", columns, sqlite_where=OPEN, postgresql_where=OPEN)
