"""Removing sessions that ended long ago, with all that belongs to their turns, a limited number of turns at a time.

A transaction that adds a turn to a session holds the session's row until it commits (``harness_worker.sessions``). A
removal holds that row too, and only then checks whether the session is still over; a row that is held is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    tuple_,
    update,
)

from harness_worker.adapters.sql.any_of import any_of
from harness_worker.adapters.sql.pipeline import Write
from harness_worker.adapters.sql.statements import NOW
from harness_worker.adapters.sql.transactions import TransactionResult, read, write, write_all
from harness_worker.core.memory.memories import session_scope
from harness_worker.schema import batches, db_now, idempotency_keys, memories, metadata, sessions, turns
from harness_worker.wire import IDEMPOTENCY_KEY_S

BATCH_TURNS: Final = 100
"""How many turns one transaction removes at most: on SQLite, all workers wait for it."""

PAGE: Final = 500

Key: TypeAlias = tuple[str, str]
"""A session's key: its tenant and its id."""

_KEY: Final = (sessions.c.tenant, sessions.c.id)
_THESE: Final = any_of(*_KEY, rows="keys")
_OF_THESE: Final = any_of(turns.c.tenant, turns.c.session_id, rows="keys")
_THEIR_OWN: Final = any_of(memories.c.tenant, memories.c.scope, rows="scopes")
_OF_SESSION: Final = (turns.c.tenant == sessions.c.tenant, turns.c.session_id == sessions.c.id)


def _late(them: FromClause, *also: ColumnElement[bool]) -> ColumnElement[bool]:
    return or_(them.c.finished_at.is_(None), them.c.finished_at >= bindparam("before"), *also)


_PARENTS: Final = turns.alias("parents")
_ROOTS: Final = turns.alias("roots")
_HAS_LATE_ROOT: Final = exists().where(_ROOTS.c.id == _PARENTS.c.parent_id, _late(_ROOTS))
_HAS_LATE_PARENT: Final = exists().where(_PARENTS.c.id == turns.c.parent_id, _late(_PARENTS, _HAS_LATE_ROOT))
_IS_LATE: Final = _late(turns, _HAS_LATE_PARENT)
"""A turn stays as long as the turn that asked for it, over all levels that exist (``delegation.MOST_LEVELS``)."""

_IS_OVER: Final = ~exists().where(*_OF_SESSION, _IS_LATE)

_PAGE: Final = (
    select(*_KEY, sessions.c.turns, _IS_OVER.label("is_over"))
    .where(tuple_(*_KEY) > tuple_(bindparam("after_tenant"), bindparam("after_id")))
    .order_by(*_KEY)
    .limit(PAGE)
)
_HELD: Final = select(*_KEY).where(_THESE).order_by(*_KEY).with_for_update(skip_locked=True)
_OVER: Final = select(*_KEY).where(_THESE, _IS_OVER)
_NEWEST: Final = select(turns.c.id).where(_OF_THESE).order_by(turns.c.number.desc()).limit(BATCH_TURNS)
_REMEMBERED: Final = select(func.count()).select_from(memories).where(_THEIR_OWN)

_OF_TURNS: Final = [
    delete(table).where(table.c.turn_id.in_(bindparam("ids", expanding=True)))
    for table in metadata.sorted_tables
    if any(key.references(turns) for key in table.foreign_keys)
]
"""Deletes from every table that refers to turns by a foreign key, so that new tables are included."""

_TURNS: Final = delete(turns).where(turns.c.id.in_(bindparam("ids", expanding=True)))
_LEFT: Final = select(func.max(turns.c.number)).where(*_OF_SESSION).scalar_subquery()
_SHORTEN: Final = update(sessions).where(_THESE).values(turns=func.coalesce(_LEFT, 0))
_SESSIONS: Final = delete(sessions).where(_THESE)
_MEMORIES: Final = delete(memories).where(_THEIR_OWN)
_EMPTY_BATCHES: Final = delete(batches).where(
    batches.c.created_at < bindparam("before"), ~exists().where(turns.c.batch_id == batches.c.id)
)
"""Deletes batches whose turns are gone; the limit of age spares one that is being made."""


_IDEMPOTENCY_KEY: Final = (idempotency_keys.c.tenant, idempotency_keys.c.key)
_OLD_KEYS: Final = (
    select(*_IDEMPOTENCY_KEY)
    .where(idempotency_keys.c.created_at < select(db_now()).scalar_subquery() - IDEMPOTENCY_KEY_S)
    .order_by(idempotency_keys.c.created_at)
    .limit(PAGE)
    .with_for_update(skip_locked=True)
)
_FORGET_KEYS: Final = delete(idempotency_keys).where(any_of(*_IDEMPOTENCY_KEY, rows="keys"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session that may be removed.

    Args:
        key: Its key.
        turns: How many turns it has.
        is_over: Whether all of them ended before the time that was asked for.
    """

    key: Key
    turns: int
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """How many sessions, turns and memories that belong to such a session alone were removed, or would be."""

    sessions: int = 0
    turns: int = 0
    memories: int = 0

    def __add__(self, other: Removed) -> Removed:
        """The sum of both."""
        return Removed(
            sessions=self.sessions + other.sessions,
            turns=self.turns + other.turns,
            memories=self.memories + other.memories,
        )


class SqlPruning:
    """Finds and removes sessions that are over.

    Args:
        engine: Made by ``make_engine``.
        tenant: Whose sessions; ``None``: those of all tenants.
    """

    def __init__(self, engine: Engine, tenant: str | None = None) -> None:
        self._engine = engine
        self._page, self._old_keys, self._batches = _PAGE, _OLD_KEYS, _EMPTY_BATCHES
        if tenant is not None:
            # SQLite would otherwise read all pages before each page, and all keys of the tenant to put them in order.
            self._page = _PAGE.where(sessions.c.tenant == tenant, sessions.c.id > bindparam("after_id"))
            self._old_keys = _OLD_KEYS.where(idempotency_keys.c.tenant == tenant).order_by(None)
            self._batches = _EMPTY_BATCHES.where(batches.c.tenant == tenant)

    def now(self) -> float:
        """The database's time, seconds since the epoch."""
        return read(self._engine, lambda connection: connection.execute(NOW).scalar_one())

    def page(self, before: float, after: Key = ("", "")) -> list[Session]:
        """The next sessions in the order of their keys, over or not; empty after the last one."""
        values = {"before": before, "after_tenant": after[0], "after_id": after[1]}
        rows = read(self._engine, lambda connection: connection.execute(self._page, values).all())
        return [Session(key=(row.tenant, row.id), turns=row.turns, is_over=row.is_over) for row in rows]

    def own_memories(self, keys: Sequence[Key]) -> int:
        """How many memories belong to these sessions, and to no user."""
        return read(self._engine, lambda connection: _remembered(connection, keys))

    def remove(self, keys: Sequence[Key], before: float) -> Removed:
        """Remove those of these sessions that are over, or at most the newest ``BATCH_TURNS`` of their turns.

        A session that loses only its newest turns is then as it was before them. The sessions are gone once a call
        has removed fewer than ``BATCH_TURNS`` turns.

        Raises:
            TransientError: The database did not answer. The whole call took effect, or nothing of it.
        """
        return write(self._engine, lambda connection: removal(connection, keys, before))

    def remove_keys(self) -> int:
        """Remove some of the idempotency keys that have expired; returns how many."""
        return write(self._engine, self._key_removal)

    def _key_removal(self, connection: Connection) -> TransactionResult[int]:
        keys = [(row.tenant, row.key) for row in connection.execute(self._old_keys)]
        return TransactionResult(value=len(keys), writes=[(_FORGET_KEYS, [{"keys": keys}])] if keys else [])

    def remove_batches(self, before: float) -> None:
        """Remove the batches made before a time that have no turns left."""
        write_all(self._engine, [(self._batches, [{"before": before}])])


def removal(connection: Connection, keys: Sequence[Key], before: float) -> TransactionResult[Removed]:
    """The writes of a removal, and what it removes; see :meth:`SqlPruning.remove`."""
    over = _over(connection, keys, before)
    ids = list(connection.execute(_NEWEST, {"keys": over}).scalars()) if over else []
    if len(ids) == BATCH_TURNS:  # there may be more
        return TransactionResult(value=Removed(turns=len(ids)), writes=[*_gone(ids), (_SHORTEN, [{"keys": over}])])
    memories = _remembered(connection, over)
    gone: list[Write] = [(_MEMORIES, [{"scopes": _scopes(over)}]), (_SESSIONS, [{"keys": over}])] if over else []
    return TransactionResult(
        value=Removed(sessions=len(over), turns=len(ids), memories=memories), writes=[*_gone(ids), *gone]
    )


def _over(connection: Connection, keys: Sequence[Key], before: float) -> list[Key]:
    """Those of the sessions that are over, with their rows held; whether they are is checked once the rows are held."""
    held = [(row.tenant, row.id) for row in connection.execute(_HELD, {"keys": list(keys)})]
    if not held:
        return []
    return [(row.tenant, row.id) for row in connection.execute(_OVER, {"keys": held, "before": before})]


def _gone(ids: Sequence[str]) -> list[Write]:
    rows: list[dict[str, Any]] = [{"ids": list(ids)}] if ids else []
    return [(statement, rows) for statement in (*_OF_TURNS, _TURNS)]


def _remembered(connection: Connection, keys: Sequence[Key]) -> int:
    return connection.execute(_REMEMBERED, {"scopes": _scopes(keys)}).scalar_one() if keys else 0


def _scopes(keys: Sequence[Key]) -> list[Key]:
    return [(tenant, session_scope(session_id)) for tenant, session_id in keys]
