"""The SQL tables, shared with the gateway, in SQLAlchemy Core; Alembic creates them (``adapters/sql/migrations``).

Times are seconds since the epoch as double precision, by the database's clock (:func:`db_now`).
"""

from __future__ import annotations

import time
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    false,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

metadata = MetaData()

_CLOCK: Final = "harness_now"


def give_clock(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's connection
    """Give a connection to SQLite the function behind :func:`db_now`, as SQLite's own clock only has milliseconds.

    Every engine for SQLite calls this when it connects.
    """
    connection.create_function(_CLOCK, 0, _host_now)


def _host_now() -> float:
    """The host's time, even if a tool has replaced ``time.time`` in its process, to freeze time for instance."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class db_now(FunctionElement[float]):  # noqa: N801 - used like an SQL function
    """The database's current time, in seconds since the epoch; it moves on within a transaction."""

    type: TypeEngine[float] = Double()
    inherit_cache = True


@compiles(db_now, "sqlite")
def _sqlite_now(_element: db_now, _compiler: Any, **_: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    return f"{_CLOCK}()"


@compiles(db_now, "postgresql")
def _postgres_now(_element: db_now, _compiler: Any, **_: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    return "(extract(epoch from clock_timestamp())::double precision)"


class least(FunctionElement[float]):  # noqa: N801 - used like an SQL function
    """The smallest of several times or durations. If one is null, SQLite gives null, and Postgres ignores it."""

    type: TypeEngine[float] = Double()
    inherit_cache = True


@compiles(least)
def _least(element: least, compiler: Any, **options: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    name = "min" if compiler.dialect.name == "sqlite" else "least"
    return f"{name}({compiler.process(element.clauses, **options)})"


class greatest(FunctionElement[float]):  # noqa: N801 - used like an SQL function
    """The largest of several times or durations; nulls are treated likewise."""

    type: TypeEngine[float] = Double()
    inherit_cache = True


@compiles(greatest)
def _greatest(element: greatest, compiler: Any, **options: Any) -> str:  # pyright: ignore[reportUnusedFunction] # noqa: ANN401 - SQLAlchemy's
    name = "max" if compiler.dialect.name == "sqlite" else "greatest"
    return f"{name}({compiler.process(element.clauses, **options)})"


def insert_for(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert into ``table`` that may say what to do on a conflict.

    Args:
        dialect: ``sqlite`` or ``postgresql``.
        table: The table to insert into.
    """
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def _partial_index(name: str, *columns: str, where: str) -> Index:
    """An index that has only the rows that meet the condition."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


_ENDED = "finished_at IS NOT NULL"
_OPEN = "finished_at IS NULL"
_CHILD = "parent_id IS NOT NULL"
_CARRIES = "carried IS NOT NULL"
_DUE = "due_at IS NOT NULL"
_OF_A_BATCH = "batch_id IS NOT NULL"

turns = Table(
    "turns",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(255), nullable=False),
    Column("session_id", String(255), nullable=False),
    Column("number", Integer, nullable=False, server_default="1"),
    Column("waits", Boolean, nullable=False, server_default=false()),
    Column("followed", Boolean, nullable=False, server_default=false()),
    Column("agent", String(255), nullable=False),
    Column("status", String(32), nullable=False),
    Column("stop_reason", String(32)),
    Column("input", Text, nullable=False),
    Column("priority", String(32), nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("parallel", Boolean),
    Column("system_prompt_override", Text),
    Column("skill_context", Text),
    Column("traceparent", String(55)),
    Column("forked_from", String(64)),
    Column("first_step", Integer, nullable=False, server_default="0"),
    Column("batch_id", String(64)),
    Column("custom_id", String(64)),
    Column("parent_id", String(64)),
    Column("parent_call_id", String(32)),
    Column("preparation", JSON(none_as_null=True)),
    Column("carried", JSON(none_as_null=True)),
    Column("output_text", Text, nullable=False, server_default=""),
    Column("citations", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
    Column("decision", String(32)),
    Column("budget", JSON, nullable=False),
    Column("used", JSON, nullable=False),
    Column("delegated", JSON(none_as_null=True)),
    Column("recall", JSON(none_as_null=True)),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("last_seq", Integer, nullable=False, server_default="0"),
    Column("message_count", Integer, nullable=False, server_default="0"),
    Column("cancel_requested", Boolean, nullable=False),
    Column("deadline_at", Double, nullable=False),
    Column("fence", BigInteger, nullable=False, server_default="0"),
    Column("owner", String(255)),
    Column("lease_until", Double),
    Column("visit_deadline", Double),
    Column("parked_at", Double),
    Column("parked_below", JSON(none_as_null=True)),
    Column("wake_at", Double),
    Column("wakes", BigInteger, nullable=False, server_default="0"),
    Column("looks", Integer, nullable=False, server_default="0"),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Index("turns_due", "wake_at"),
    Index("turns_listed", "tenant", "created_at", "id"),
    Index("turns_session", "tenant", "session_id", "number", unique=True),
    _partial_index("turns_open", "tenant", "status", "priority", "created_at", where=_OPEN),
    _partial_index("turns_unfinished", "tenant", "session_id", "number", where=_OPEN),
    _partial_index("turns_carrying", "tenant", "session_id", "number", where=_CARRIES),
    _partial_index("turns_children", "parent_id", where=_CHILD),
    _partial_index("turns_by_status", "tenant", "status", "created_at", "id", where=_ENDED),
    _partial_index("turns_ended", "finished_at", where=_ENDED),
    _partial_index("turns_batch", "batch_id", "id", where=_OF_A_BATCH),
)

sessions = Table(
    "sessions",
    metadata,
    Column("tenant", String(255), nullable=False),
    Column("id", String(255), nullable=False),
    Column("turns", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("tenant", "id"),
    Index("sessions_listed", "tenant", "created_at", "id"),
)
"""Conversations. ``turns`` is the number of the last turn; whoever adds a turn locks this row until the commit."""

batches = Table(
    "batches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(255), nullable=False),
    Column("total", Integer, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("batches_listed", "tenant", "created_at", "id"),
)
"""Turns that were posted together. A batch's state is that of its turns, which name it in ``batch_id``."""

messages = Table(
    "messages",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("role", String(32), nullable=False),
    Column("content", JSON, nullable=False),
    PrimaryKeyConstraint("turn_id", "position"),
)

past_turns = Table(
    "past_turns",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("output_text", Text, nullable=False),
    Column("preparation", JSON(none_as_null=True)),
    Column("stop_reason", String(32)),
    Column("carried", JSON(none_as_null=True)),
    PrimaryKeyConstraint("turn_id", "number"),
)
"""The past of a fork: copies of turns of its origin's session, because the originals may be removed any day.
The first of them is the last one with ``carried``, if there is one. ``turn_id`` is the fork, the first turn of its
session; ``number`` counts back from it: -1 is the latest."""

past_messages = Table(
    "past_messages",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("role", String(32), nullable=False),
    Column("content", JSON, nullable=False),
    PrimaryKeyConstraint("turn_id", "number", "position"),
)
"""The messages of these copied turns."""

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("tool_use_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("effect", String(32)),
    Column("arguments", JSON, nullable=False),
    Column("wave", Integer, nullable=False),
    Column("retry_safe", Boolean, nullable=False),
    Column("timeout_s", Double, nullable=False),
    Column("queue", String(255), nullable=False),
    Column("idempotency_key", String(255), nullable=False),
    Column("kind", String(32)),
    Column("was_coerced", Boolean, nullable=False),
    Column("approval", JSON(none_as_null=True)),
    Column("idempotent", Boolean, nullable=False, server_default=false()),
    Column("hooked", Boolean, nullable=False, server_default=false()),
    Column("delegation", JSON(none_as_null=True)),
    Column("status", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_until", Double),
    Column("runner", String(255)),
    Column("deadline_at", Double),
    Column("outcome", JSON(none_as_null=True)),
    Column("collected", Boolean, nullable=False),
    Column("worker", String(255)),
    Column("started_at", Double),
    Column("finished_at", Double),
    PrimaryKeyConstraint("turn_id", "step", "position"),
)

turn_events = Table(
    "turn_events",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("type", String(64), nullable=False),
    Column("at", Double, nullable=False),
    Column("data", JSON, nullable=False),
    PrimaryKeyConstraint("turn_id", "seq"),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(255), nullable=False),
    Column("session_id", String(255), nullable=False),
    Column("turn_id", String(64), nullable=False),
    Column("call_id", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("summary", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("artifacts_expiry", "expires_at"),
)

scores = Table(
    "scores",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), nullable=False),
    Column("judge", String(64), nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("lease_until", Double),
    Column("due_at", Double),
    Column("score", Double),
    Column("reason", Text, nullable=False, server_default=""),
    Column("error", Text),
    Column("at", Double),
    PrimaryKeyConstraint("turn_id", "judge"),
    _partial_index("scores_due", "due_at", where=_DUE),
)
"""What judges say about ended turns. Until a score is given or given up, ``at`` is null and ``due_at`` is not."""

webhooks = Table(
    "webhooks",
    metadata,
    Column("turn_id", String(64), ForeignKey("turns.id"), primary_key=True),
    Column("url", Text, nullable=False),
    Column("host", String(255), nullable=False),
    Column("told_seq", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("due_at", Double),
    Column("lease_until", Double),
    Column("status_code", Integer),
    Column("error", Text),
    Column("at", Double),
    _partial_index("webhooks_due", "due_at", where=_DUE),
)
"""Turns' webhooks. ``told_seq`` is the last event that was delivered or given up; ``seq`` and ``attempt`` are the event
that was tried last and how often, ``failures`` how many of these attempts ended and failed, ``at`` when the last one
did. ``due_at`` is null once nothing more will be delivered."""

memories = Table(
    "memories",
    metadata,
    Column("turn_id", String(64), nullable=False),
    Column("position", Integer, nullable=False),
    Column("tenant", String(255), nullable=False),
    Column("scope", String(640), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("text", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("turn_id", "position", "created_at"),
    Index("memories_scope", "tenant", "scope", "created_at"),
)
"""What users said that is worth remembering. ``scope`` is its owner within the tenant: a user or a session. ``turn_id``
is the turn it comes from; it outlives that turn, whose id a producer may then give to another."""

agents = Table(
    "agents",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("app", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("tools", JSON, nullable=False),
    Column("budget", JSON, nullable=False),
    Column("parallel", Boolean, nullable=False),
    Column("published_at", Double, nullable=False),
)
"""The catalogue that coordinators publish and the gateway validates against. ``budget`` is complete: the agent's caps.
``published_at`` is when a coordinator last confirmed that it serves the agent like this. Among a tool's fields,
``queue`` is missing in rows of early versions, and ``checks_formats`` is present only if false."""

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant", String(255), nullable=False),
    Column("key", String(255), nullable=False),
    Column("body", Text, nullable=False),
    Column("turn_id", String(64), nullable=False),
    Column("status_code", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("tenant", "key"),
    Index("idempotency_keys_age", "created_at"),
)
"""Requests by ``Idempotency-Key``. ``body`` is the canonical JSON's SHA-256; ``turn_id`` is the turn or batch made."""

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Index("api_keys_digest", "digest", unique=True),
)
"""API keys of the gateway. ``digest`` is the ``credentials.key_digest`` of a key; the key itself is not stored."""
