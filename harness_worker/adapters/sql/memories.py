"""``ports.MemoryStore`` on SQLite or Postgres, and an operator's commands on memories.

Memories are written by the commit that ends a turn, or later by the process that asks a model what to remember.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine, bindparam, delete, func, select

from harness_worker.adapters.sql.pipeline import AnySelect, fetch
from harness_worker.adapters.sql.transactions import TransactionResult, read, write
from harness_worker.core.memory.memories import Memory, MemoryKind
from harness_worker.schema import memories

_LATEST: Final = func.max(memories.c.created_at)
_WHOSE: Final = (memories.c.tenant == bindparam("of_tenant"), memories.c.scope == bindparam("of_scope"))
_RECALL: Final[AnySelect] = (
    select(memories.c.kind, memories.c.text)
    .where(*_WHOSE)
    .group_by(memories.c.kind, memories.c.text)
    .order_by(_LATEST.desc(), func.max(memories.c.position).desc())
    .limit(bindparam("most"))
)
_LISTED: Final = (
    select(memories.c.kind, memories.c.text, memories.c.turn_id, memories.c.created_at)
    .where(*_WHOSE)
    .order_by(memories.c.created_at.desc(), memories.c.turn_id, memories.c.position)
)
_FORGET: Final = delete(memories).where(*_WHOSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A stored memory.

    Args:
        kind: ``fact`` or ``preference``.
        text: What is remembered.
        turn_id: The turn that it comes from, which may be gone.
        created_at: When it was stored, seconds since the epoch.
    """

    kind: str
    text: str
    turn_id: str
    created_at: float


class SqlMemories:
    """Implements ``ports.MemoryStore`` on SQLite or Postgres.

    Args:
        engine: Made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def recall(self, tenant: str, scope: str, limit: int) -> tuple[Memory, ...]:
        """See ``ports.MemoryStore.recall``."""
        values = {"of_tenant": tenant, "of_scope": scope, "most": limit}
        (rows,) = read(self._engine, lambda connection: fetch(connection, [_RECALL], values))
        return tuple(Memory(kind=MemoryKind(kind), text=text) for kind, text in rows)

    def listed(self, tenant: str, scope: str) -> list[Kept]:
        """All memories in a scope of a tenant, including repeated texts, newest first."""
        values = {"of_tenant": tenant, "of_scope": scope}
        rows = read(self._engine, lambda connection: connection.execute(_LISTED, values).all())
        return [Kept(kind=row.kind, text=row.text, turn_id=row.turn_id, created_at=row.created_at) for row in rows]

    def forget(self, tenant: str, scope: str) -> int:
        """Remove all memories in a scope of a tenant; returns how many there were."""
        whose = {"of_tenant": tenant, "of_scope": scope}
        return write(
            self._engine, lambda connection: TransactionResult(value=connection.execute(_FORGET, whose).rowcount)
        )
