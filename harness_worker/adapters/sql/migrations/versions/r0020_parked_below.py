"""``turns.parked_below``: which turns below a turn wait for people."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"


def upgrade() -> None:
    """Existing turns know of none."""
    op.add_column("turns", sa.Column("parked_below", sa.JSON()))
