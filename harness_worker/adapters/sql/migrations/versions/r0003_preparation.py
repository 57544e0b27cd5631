"""With what a turn is sent to its model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    """A turn that was sent before goes on without context, as it began."""
    op.add_column("turns", sa.Column("preparation", sa.JSON(none_as_null=True)))
