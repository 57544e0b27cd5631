"""Drops the version of a turn's row: Postgres itself stamps each row with the transaction that wrote it."""

from __future__ import annotations

from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"


def upgrade() -> None:
    """No version of the harness has read it since it compares those stamps."""
    op.drop_column("turns", "version")
