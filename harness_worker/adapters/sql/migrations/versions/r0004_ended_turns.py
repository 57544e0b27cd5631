"""An index of the turns that have ended, by time, for whoever counts them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"

ENDED = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    """It holds only turns that have ended: one entry per turn, written once."""
    op.create_index("turns_ended", "turns", ["finished_at"], sqlite_where=ENDED, postgresql_where=ENDED)
