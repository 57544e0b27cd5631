"""An index of the turns that have ended, by status: a list of the few that failed reads none of the others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"

ENDED = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    """In the order of lists. A turn is added once, when it ends; unfinished ones have an index of their own."""
    columns = ["tenant", "status", "created_at", "id"]
    op.create_index("turns_by_status", "turns", columns, sqlite_where=ENDED, postgresql_where=ENDED)
