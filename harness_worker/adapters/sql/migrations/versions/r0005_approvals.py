"""What a call knows of the person it waits for, and since when its turn has waited."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"


def upgrade() -> None:
    """Add the two columns; turns and calls that are there need neither."""
    op.add_column("turns", sa.Column("parked_at", sa.Double))
    op.add_column("tool_calls", sa.Column("approval", sa.JSON(none_as_null=True)))
