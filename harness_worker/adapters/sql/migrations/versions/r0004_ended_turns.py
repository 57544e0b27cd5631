"""An index for those who count the turns that have ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"

ENDED = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    """Only turns that have ended are in it: one entry a turn, written once."""
    op.create_index("turns_ended", "turns", ["finished_at"], sqlite_where=ENDED, postgresql_where=ENDED)
