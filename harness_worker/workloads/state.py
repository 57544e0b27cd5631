"""A workload's state in SQL: changed records over a base that never changes, the effect journal, and receipts.

Any tool process may serve the next call, so nothing is kept in memory. A turn sees the base overlaid with the records
that it changed itself; turns never see each other's changes. Journal row, observation and changed records are committed
together under the call's idempotency key: a second execution finds the receipt and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    text,
    update,
)

from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.failures import translated
from harness_worker.schema import insert_for
from harness_worker.workloads.base import JournalRow, Observation, RecordedEffect

metadata = MetaData()

_Seq = BigInteger().with_variant(Integer, "sqlite")

overlays = Table(
    "wl_overlay",
    metadata,
    Column("turn_id", String(64), nullable=False),
    Column("collection", String(255), nullable=False),
    Column("key", String(255), nullable=False),
    Column("record", Text),
    PrimaryKeyConstraint("turn_id", "collection", "key"),
)
"""Changed records. ``record`` is JSON as text, with its keys in their original order; null means deleted."""

effects = Table(
    "wl_effects",
    metadata,
    Column("seq", _Seq, primary_key=True, autoincrement=True),
    Column("turn_id", String(64), nullable=False),
    Column("tool", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("call_id", String(64), nullable=False),
    Column("worker", String(255), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("idempotency_key", String(255), nullable=False, unique=True),
    Column("observation", Text, nullable=False),
    Index("wl_effects_turn", "turn_id", "seq"),
)
"""The effect journal, append-only: one row for each change; none for a write that raised and changed nothing."""

receipts = Table(
    "wl_receipts",
    metadata,
    Column("idempotency_key", String(255), primary_key=True),
    Column("content", Text, nullable=False),
    Column("is_error", Boolean, nullable=False),
)
"""The answer of every write, including failed ones, because a failed write might succeed when repeated later."""

_CREATE_LOCK = 7_249_301
"""An arbitrary number, the same in every process: the first one creates the tables while the others wait."""

RecordKey = tuple[str, str]
Overlay = Mapping[RecordKey, str | None]
"""Changed records as JSON by (collection, key); ``None`` means deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCall:
    """The call that a write belongs to."""

    turn_id: str
    call_id: str
    idempotency_key: str
    attempt: int
    worker: str
    effect: RecordedEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a call did: the observation, and the records it changed.

    Args:
        observation: The tool's answer.
        changed: The new state of the records that it changed.
        is_declared: Whether the tool is declared as a write, so that even a call that changes no record is an effect.
    """

    observation: Observation
    changed: Overlay
    is_declared: bool = True

    @property
    def is_effect(self) -> bool:
        """Whether a record changed, or a tool that is declared as a write succeeded."""
        return bool(self.changed) or (self.is_declared and not self.observation.is_error)


class WorkloadState:
    """The tables of one workload.

    Every method raises ``TransientError`` if the database does not answer.

    Args:
        engine: The engine of its database, made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self) -> None:
        """Create the tables if they are missing; many processes may do so at once."""
        with translated(self._engine.url), self._engine.begin() as tx:
            if tx.dialect.name == "postgresql":
                tx.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _CREATE_LOCK})
            metadata.create_all(tx)

    def overlay(self, turn_id: str) -> Overlay:
        """The records that a turn has changed so far."""
        with translated(self._engine.url), reading(self._engine).connect() as connection:
            return _overlay(connection, turn_id)

    def journal(self, turn_id: str) -> tuple[JournalRow, ...]:
        """A turn's effects in the order of their commits."""
        wanted = select(effects).where(effects.c.turn_id == turn_id).order_by(effects.c.seq)
        with translated(self._engine.url), reading(self._engine).connect() as connection:
            return tuple(_journal_row(row) for row in connection.execute(wanted).mappings())

    def once(self, call: WriteCall, act: Callable[[Overlay], Written]) -> Observation:
        """Run ``act`` and commit what it did, or return its earlier answer if it ran before.

        Args:
            call: The call, with its idempotency key.
            act: Given the turn's overlay. Everything it does must be in what it returns, because it may be rolled back.
        """
        # Not retried here: the harness retries on a transient error, and the key makes that safe.
        with translated(self._engine.url), self._engine.begin() as tx:
            key = call.idempotency_key
            if not _claim(tx, key):
                found = tx.execute(select(receipts).where(receipts.c.idempotency_key == key)).one()
                return Observation(content=found.content, is_error=found.is_error)
            done = act(_overlay(tx, call.turn_id))
            _record(tx, call, done)
            return done.observation


def _claim(tx: Connection, key: str) -> bool:
    """Claim the key; waits for another transaction that has claimed it and not yet committed."""
    blank = {"idempotency_key": key, "content": "", "is_error": False}
    taken = insert_for(tx.dialect.name, receipts).values(blank).on_conflict_do_nothing()
    return tx.execute(taken, execution_options={"preserve_rowcount": True}).rowcount == 1


def _overlay(connection: Connection, turn_id: str) -> Overlay:
    rows = connection.execute(select(overlays).where(overlays.c.turn_id == turn_id)).mappings()
    return {(row["collection"], row["key"]): row["record"] for row in rows}


def _record(tx: Connection, call: WriteCall, done: Written) -> None:
    answer = {"content": done.observation.content, "is_error": done.observation.is_error}
    tx.execute(update(receipts).where(receipts.c.idempotency_key == call.idempotency_key).values(answer))
    if done.is_effect:
        tx.execute(insert(effects), _effect_columns(call, done.observation))
    for (collection, key), record in done.changed.items():
        place = {"turn_id": call.turn_id, "collection": collection, "key": key}
        tx.execute(delete(overlays).where(*(overlays.c[name] == value for name, value in place.items())))
        tx.execute(insert(overlays), {**place, "record": record})


def _effect_columns(call: WriteCall, answer: Observation) -> dict[str, Any]:
    return {
        "turn_id": call.turn_id,
        "tool": call.effect.tool,
        "arguments": call.effect.arguments,
        "call_id": call.call_id,
        "worker": call.worker,
        "attempt": call.attempt,
        "idempotency_key": call.idempotency_key,
        "observation": answer.content,
    }


def _journal_row(row: Mapping[Any, Any]) -> JournalRow:
    return JournalRow(
        seq=row["seq"],
        turn_id=row["turn_id"],
        call_id=row["call_id"],
        effect=RecordedEffect(tool=row["tool"], arguments=row["arguments"]),
        worker=row["worker"],
        attempt=row["attempt"],
        idempotency_key=row["idempotency_key"],
        observation=row["observation"],
    )
