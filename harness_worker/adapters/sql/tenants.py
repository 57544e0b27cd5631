"""The SQL of a tenant's share: how many of its turns run, and which are next."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, literal_column, select

from harness_worker.schema import turns
from harness_worker.sessions import FOLLOWS_UNFINISHED
from harness_worker.wire import Priority, TurnStatus

WOKEN: Final = 2
"""How many turns are woken when one makes room: two that end at once may choose the same turn, but each leaves room."""

_OPEN: Final = (turns.c.tenant == bindparam("of_tenant"), turns.c.finished_at.is_(None))

RUNNING: Final = (
    select(func.count())
    .select_from(turns)
    .where(
        *_OPEN,
        turns.c.status == literal_column(f"'{TurnStatus.RUNNING.value}'"),
        turns.c.parent_id.is_(None),
        turns.c.parked_at.is_(None),
    )
)
"""How many turns of a tenant run; a turn that is a call of another counts as part of that one.

A turn whose calls all wait for people does not count, just as one that itself waits for a person.
"""

WAITING: Final = tuple(
    select(turns.c.id, turns.c.priority)
    .where(
        *_OPEN,
        turns.c.status == literal_column(f"'{TurnStatus.QUEUED.value}'"),
        turns.c.priority == literal_column(f"'{priority.value}'"),
        turns.c.waits,
        ~FOLLOWS_UNFINISHED,
    )
    .order_by(turns.c.created_at)
    .limit(literal_column(str(WOKEN)))
    for priority in Priority
)
"""For each priority, the oldest waiting turns of a tenant that are next in their sessions, as (id, priority)."""
