"""``ports.MemoryStore`` on SQLite or Postgres. What is remembered is written by the commit that ends a turn."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine, bindparam, func, select

from harness_worker.adapters.sql.engine import reading
from harness_worker.adapters.sql.pipeline import AnySelect, fetch
from harness_worker.adapters.sql.transactions import read
from harness_worker.core.memories import Memory, MemoryKind
from harness_worker.schema import memories

_LATEST: Final = func.max(memories.c.created_at)
_RECALL: Final[AnySelect] = (
    select(memories.c.kind, memories.c.text)
    .where(memories.c.tenant == bindparam("of_tenant"), memories.c.scope == bindparam("of_scope"))
    .group_by(memories.c.kind, memories.c.text)
    .order_by(_LATEST.desc(), func.max(memories.c.position).desc())
    .limit(bindparam("most"))
)


class SqlMemories:
    """Reads what is remembered.

    Args:
        engine: Made by ``make_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self._reader = reading(engine)

    def recall(self, tenant: str, scope: str, limit: int) -> tuple[Memory, ...]:
        """What is remembered within a scope of a tenant, each text once, newest first."""
        values = {"of_tenant": tenant, "of_scope": scope, "most": limit}
        (rows,) = read(self._reader, lambda connection: fetch(connection, [_RECALL], values))
        return tuple(Memory(kind=MemoryKind(kind), text=text) for kind, text in rows)
