"""Why the past turns of a fork ended: what a model declined is not sent again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | None = "0020"


def upgrade() -> None:
    """It stays unknown for existing forks."""
    op.add_column("past_turns", sa.Column("stop_reason", sa.String(32)))
