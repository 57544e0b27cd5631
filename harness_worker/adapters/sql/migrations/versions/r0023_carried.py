"""``carried``: what remains of a history up to a summary, so that later prompts need not read what came before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"


CARRIES = sa.text("carried IS NOT NULL")


def upgrade() -> None:
    """Existing summaries have none: until the next one, their sessions are read from the beginning."""
    op.add_column("turns", sa.Column("carried", sa.JSON()))
    op.add_column("past_turns", sa.Column("carried", sa.JSON()))
    columns = ["tenant", "session_id", "number"]
    op.create_index("turns_carrying", "turns", columns, sqlite_where=CARRIES, postgresql_where=CARRIES)
