"""An index of the turns that have not ended, for the share of a tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"

OPEN = sa.text("finished_at IS NULL")


def upgrade() -> None:
    """By tenant and status, oldest first."""
    columns = ["tenant", "status", "created_at"]
    op.create_index("turns_open", "turns", columns, sqlite_where=OPEN, postgresql_where=OPEN)
