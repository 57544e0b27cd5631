"""The decision record of a turn, and the kind of each call's tool."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"


def upgrade() -> None:
    """Add the two columns, which stay empty for existing turns and calls."""
    op.add_column("turns", sa.Column("decision", sa.String(32)))
    op.add_column("tool_calls", sa.Column("kind", sa.String(32)))
