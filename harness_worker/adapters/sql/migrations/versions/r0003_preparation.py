"""``turns.preparation``: the parts of a turn's prompt besides its history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    """Existing turns have none, and go on as they began, without context."""
    op.add_column("turns", sa.Column("preparation", sa.JSON(none_as_null=True)))
