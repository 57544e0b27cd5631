"""The SQL of turns that are calls of other turns: a turn's children, which turns it stops, and which its end wakes.

A transaction that ends a turn holds its row, and may wait for the rows of its children. So no transaction that holds a
child's row waits for its parent's: a parent whose row is held is skipped, and soon looks at its children anyway. Nor
does any wait for the row of a grandchild: one that is held is skipped too, and stops when the child between has ended.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Select, Update, bindparam, select, true, update

from harness_worker.adapters.sql.rows import TURN_FIELDS
from harness_worker.schema import db_now, turns
from harness_worker.wire import TurnStatus

_STOP: Final = update(turns).values(cancel_requested=true(), wakes=turns.c.wakes + 1, wake_at=db_now())

CHILDREN: Final = select(*(turns.c[name] for name in TURN_FIELDS)).where(
    turns.c.parent_id == bindparam("of_parent"), turns.c.id.in_(bindparam("ids", expanding=True))
)
"""Those of the given turns that are children of the parent, with the columns in the order of ``TURN_FIELDS``."""

PARKED: Final = select(turns.c.id, turns.c.fence).where(
    turns.c.id.in_(bindparam("ids", expanding=True)), turns.c.status == TurnStatus.REQUIRES_ACTION
)
"""Those of the given turns that wait for people, each with the fence under which it was parked."""

STOP_CHILDREN: Final = _STOP.where(turns.c.parent_id == bindparam("of_parent"), turns.c.finished_at.is_(None))
"""Asks a turn's children to stop."""


def stop_below(stopped: Select[tuple[str]]) -> Update:
    """The statement that asks the children of turns to stop, except those whose rows somebody holds.

    The rows of the turns, selected by id in ``stopped``, must be locked by then. Otherwise a transaction that ends one
    of them could wait for a child's row that is held here, while this one waits for that turn's row.
    """
    below = select(turns.c.id).where(turns.c.parent_id.in_(stopped), turns.c.finished_at.is_(None))
    return _STOP.where(turns.c.id.in_(below.with_for_update(key_share=True, skip_locked=True, of=turns)))


_CHILD: Final = turns.alias("child")
STOP_GRANDCHILDREN: Final = stop_below(
    select(_CHILD.c.id).where(_CHILD.c.parent_id == bindparam("of_parent"), _CHILD.c.finished_at.is_(None))
)
"""Asks a turn's grandchildren to stop, after its children; there are at most three levels."""

_PARENT: Final = select(turns.c.id).where(turns.c.id == bindparam("parent"), turns.c.finished_at.is_(None))
WAKE_PARENT: Final = (
    update(turns)
    .where(turns.c.id.in_(_PARENT.with_for_update(key_share=True, skip_locked=True)))
    .values(wakes=turns.c.wakes + 1, wake_at=db_now())
)
"""Makes the turn that waits for this one due for a look."""
