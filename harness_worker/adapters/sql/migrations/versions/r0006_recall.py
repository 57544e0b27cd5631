"""What the gates need: ``turns.recall``, and whether a call is idempotent and whether it has hooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"


def upgrade() -> None:
    """Add the columns; calls that are already planned count as neither idempotent nor hooked."""
    op.add_column("turns", sa.Column("recall", sa.JSON(none_as_null=True)))
    for name in ("idempotent", "hooked"):
        op.add_column("tool_calls", sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False))
