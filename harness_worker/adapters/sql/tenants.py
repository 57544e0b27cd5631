"""The SQL of a tenant's share: how many of its turns run, and which of them is the next to."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, literal_column, select

from harness_worker.schema import turns
from harness_worker.sessions import FOLLOWS_UNFINISHED
from harness_worker.wire import Priority, TurnStatus

WOKEN: Final = 2
"""Turns that are woken where one made room: two ends at once may choose the same one, and each leaves room."""

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
"""How many turns of a tenant run; a turn that is another's call is a part of that one.

One all of whose calls wait for people holds no place, as one that waits for a person itself.
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
"""By priority, the oldest turns of a tenant that wait and are behind no other of their session, as (id, priority)."""
