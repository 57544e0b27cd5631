"""How an ended turn came by its answer, and what kind of tool each call is of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"


def upgrade() -> None:
    """Add the two columns; nothing is said of turns and calls that are there."""
    op.add_column("turns", sa.Column("decision", sa.String(32)))
    op.add_column("tool_calls", sa.Column("kind", sa.String(32)))
