"""``tool_calls.approval``, and since when a turn is parked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"


def upgrade() -> None:
    """Add the two columns, which stay empty for existing turns and calls."""
    op.add_column("turns", sa.Column("parked_at", sa.Double))
    op.add_column("tool_calls", sa.Column("approval", sa.JSON(none_as_null=True)))
