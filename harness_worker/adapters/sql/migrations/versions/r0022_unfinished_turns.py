"""An index of the turns that have not ended, by place: it finds those ahead of a turn, however long its session is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0022"
down_revision: str | None = "0021"

OPEN = sa.text("finished_at IS NULL")


def upgrade() -> None:
    """By session, in order."""
    columns = ["tenant", "session_id", "number"]
    op.create_index("turns_unfinished", "turns", columns, sqlite_where=OPEN, postgresql_where=OPEN)
