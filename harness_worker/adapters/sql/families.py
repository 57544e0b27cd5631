"""The SQL of turns that are calls of other turns: a turn's children, whom it stops, and whom its end wakes.

Who ends a turn holds its row, and may wait for those of its children. So nobody who holds a child's row waits for its
parent's: a parent whose row is held is passed over, and looks at its children by itself soon.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, select, true, update

from harness_worker.adapters.sql.rows import TURN_FIELDS
from harness_worker.schema import db_now, turns

CHILDREN: Final = select(*(turns.c[name] for name in TURN_FIELDS)).where(
    turns.c.parent_id == bindparam("of_parent"), turns.c.id.in_(bindparam("ids", expanding=True))
)
"""Those of these turns that are children of the parent, in the order of ``TURN_FIELDS``."""

STOP_CHILDREN: Final = (
    update(turns)
    .where(turns.c.parent_id == bindparam("of_parent"), turns.c.finished_at.is_(None))
    .values(cancel_requested=true(), wakes=turns.c.wakes + 1, wake_at=db_now())
)
"""Ask a turn's children to stop."""

_PARENT: Final = select(turns.c.id).where(turns.c.id == bindparam("parent"), turns.c.finished_at.is_(None))
WAKE_PARENT: Final = (
    update(turns)
    .where(turns.c.id.in_(_PARENT.with_for_update(key_share=True, skip_locked=True)))
    .values(wakes=turns.c.wakes + 1, wake_at=db_now())
)
"""Have somebody look at the turn that waits for this one."""
