"""Sessions, which put the turns of a conversation in order."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """Number the existing turns by their time, and add their sessions."""
    op.add_column("turns", sa.Column("number", sa.Integer(), server_default="1", nullable=False))
    for name in ("waits", "followed"):
        op.add_column("turns", sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False))
    op.execute(
        "UPDATE turns SET number = ordered.number FROM (SELECT id, row_number() OVER "
        "(PARTITION BY tenant, session_id ORDER BY created_at, id) AS number FROM turns) AS ordered "
        "WHERE ordered.id = turns.id"
    )
    op.drop_index("turns_session", "turns")
    op.create_index("turns_session", "turns", ["tenant", "session_id", "number"], unique=True)
    _sessions()


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("sessions_listed", "sessions", ["tenant", "created_at", "id"])
    op.execute(
        "INSERT INTO sessions (tenant, id, turns, created_at) "
        "SELECT tenant, session_id, count(*), min(created_at) FROM turns GROUP BY tenant, session_id"
    )
