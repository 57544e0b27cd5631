"""An index of idempotency keys by age, for whoever removes the expired ones."""

from __future__ import annotations

from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"


def upgrade() -> None:
    """Oldest first."""
    op.create_index("idempotency_keys_age", "idempotency_keys", ["created_at"])
