"""Why the turns ended that a fork was given: what a model declined is not sent again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | None = "0020"


def upgrade() -> None:
    """Of those that are there it is not known."""
    op.add_column("past_turns", sa.Column("stop_reason", sa.String(32)))
