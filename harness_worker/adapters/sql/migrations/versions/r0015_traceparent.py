"""``turns.traceparent``: the caller's span that a turn belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"


def upgrade() -> None:
    """Existing turns belong to none."""
    op.add_column("turns", sa.Column("traceparent", sa.String(55)))
