"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Create every table of the first version."""
    _turns()
    _messages()
    _tool_calls()
    _turn_events()
    _artifacts()
    _agents()
    _idempotency_keys()


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("session_id", sa.String(255), nullable=False),
        sa.Column("agent", sa.String(255), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("stop_reason", sa.String(32)),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("priority", sa.String(32), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("parallel", sa.Boolean()),
        sa.Column("system_prompt_override", sa.Text()),
        sa.Column("skill_context", sa.Text()),
        sa.Column("output_text", sa.Text(), server_default="", nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True)),
        sa.Column("budget", sa.JSON(), nullable=False),
        sa.Column("used", sa.JSON(), nullable=False),
        sa.Column("step", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_seq", sa.Integer(), server_default="0", nullable=False),
        sa.Column("message_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("deadline_at", sa.Double, nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("owner", sa.String(255)),
        sa.Column("lease_until", sa.Double),
        sa.Column("visit_deadline", sa.Double),
        sa.Column("wake_at", sa.Double),
        sa.Column("wakes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("looks", sa.Integer(), server_default="0", nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("turns_due", "turns", ["wake_at"])
    op.create_index("turns_listed", "turns", ["tenant", "created_at", "id"])
    op.create_index("turns_session", "turns", ["session_id", "created_at"])


def _messages() -> None:
    op.create_table(
        "messages",
        sa.Column("turn_id", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"]),
        sa.PrimaryKeyConstraint("turn_id", "position"),
    )


def _tool_calls() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("turn_id", sa.String(64), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("tool_use_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("effect", sa.String(32)),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("retry_safe", sa.Boolean(), nullable=False),
        sa.Column("timeout_s", sa.Double, nullable=False),
        sa.Column("queue", sa.String(255), nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=False),
        sa.Column("was_coerced", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_until", sa.Double),
        sa.Column("runner", sa.String(255)),
        sa.Column("deadline_at", sa.Double),
        sa.Column("outcome", sa.JSON(none_as_null=True)),
        sa.Column("collected", sa.Boolean(), nullable=False),
        sa.Column("worker", sa.String(255)),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"]),
        sa.PrimaryKeyConstraint("turn_id", "step", "position"),
    )


def _turn_events() -> None:
    op.create_table(
        "turn_events",
        sa.Column("turn_id", sa.String(64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"]),
        sa.PrimaryKeyConstraint("turn_id", "seq"),
    )


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("session_id", sa.String(255), nullable=False),
        sa.Column("turn_id", sa.String(64), nullable=False),
        sa.Column("call_id", sa.String(64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("artifacts_expiry", "artifacts", ["expires_at"])


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("app", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("tools", sa.JSON(), nullable=False),
        sa.Column("budget", sa.JSON(), nullable=False),
        sa.Column("parallel", sa.Boolean(), nullable=False),
        sa.Column("published_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.String(64), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key"),
    )
