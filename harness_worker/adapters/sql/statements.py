"""The statements of the store, built once: SQLAlchemy compiles each once and caches it by the identity of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Insert,
    bindparam,
    case,
    insert,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from harness_worker.adapters.sql.any_of import any_of
from harness_worker.adapters.sql.rows import CALL_FIELDS, TURN_FIELDS
from harness_worker.core.records import CallStatus
from harness_worker.schema import (
    artifacts,
    db_now,
    greatest,
    insert_for,
    least,
    memories,
    messages,
    scores,
    sessions,
    tool_calls,
    turn_events,
    turns,
)
from harness_worker.wire import FINAL_STATUSES, Priority, TurnStatus

LONGEST_PAUSE_S: Final[Mapping[Priority, float]] = {Priority.INTERACTIVE: 60.0, Priority.BATCH: 600.0}
"""The longest pause between two wake-ups of a turn that nobody has taken, in seconds."""

NOW: Final = select(db_now())
PING: Final = select(turns.c.id).limit(0)
PRIORITY: Final = select(turns.c.priority).where(turns.c.id == bindparam("turn_id"))
ONE_TURN: Final = select(*(turns.c[name] for name in TURN_FIELDS)).where(turns.c.id == bindparam("turn_id"))
ALL_CALLS: Final = (
    select(*(tool_calls.c[name] for name in CALL_FIELDS))
    .where(tool_calls.c.turn_id == bindparam("turn_id"))
    .order_by(tool_calls.c.step, tool_calls.c.position)
)
HISTORY: Final = (
    select(messages.c.position, messages.c.role, messages.c.content)
    .where(messages.c.turn_id == bindparam("turn_id"))
    .order_by(messages.c.position)
)
EVENTS: Final = (
    select(turn_events.c.turn_id, turn_events.c.seq, turn_events.c.type, turn_events.c.at, turn_events.c.data)
    .where(turn_events.c.turn_id == bindparam("turn_id"))
    .order_by(turn_events.c.seq)
)

CHANGE_TURN: Final = update(turns).where(turns.c.id == bindparam("this_turn"))
CHANGE_CALL: Final = update(tool_calls).where(
    tool_calls.c.turn_id == bindparam("this_turn"),
    tool_calls.c.step == bindparam("this_step"),
    tool_calls.c.position == bindparam("this_position"),
)
ADD_TURN: Final = insert(turns)
ADD_SESSION: Final = insert(sessions)
ADD_CALL: Final = insert(tool_calls)
ADD_MESSAGE: Final = insert(messages)
ADD_EVENT: Final = insert(turn_events)
ADD_SCORE: Final = insert(scores)
ADD_MEMORY: Final = insert(memories)

_latest_step: Final = select(turns.c.step - literal_column("1")).where(turns.c.id == bindparam("turn_id"))
SNAPSHOT_CALLS: Final = ALL_CALLS.where(
    or_(tool_calls.c.collected.is_(False), tool_calls.c.step == _latest_step.scalar_subquery())
)
"""The calls that a rule may look at: those not collected yet, and all of the latest step."""

# The locks below are FOR NO KEY UPDATE. For SQLite, the compiler leaves them out: it has no row locks and needs none,
# because its write transactions run one at a time.
LOCK_CALLS: Final = SNAPSHOT_CALLS.with_for_update(key_share=True)

# The clock is read outside the part that locks: inside, it would be read before the wait for the lock.
_locked: Final = ONE_TURN.with_for_update(key_share=True).cte("locked")
LOCK_TURN: Final = select(*(_locked.c[name] for name in TURN_FIELDS), db_now())
"""The turn's columns, and then the database's time, read once the turn's row is locked."""

_FINAL: Final = sorted(status.value for status in FINAL_STATUSES)
_VISIT_KEY: Final = (turns.c.id, turns.c.owner, turns.c.fence)
HELD_TURNS: Final = select(*_VISIT_KEY).where(
    any_of(*_VISIT_KEY, rows="visits"),
    turns.c.status.not_in(_FINAL),
)
"""Those of the given visits that hold their turns."""

_CALL_KEY: Final = (tool_calls.c.turn_id, tool_calls.c.step, tool_calls.c.position)
_beating: Final = select(*_CALL_KEY).where(
    # Not by attempt: a process runs one call at a time, and may have increased the attempt named in its message.
    any_of(*_CALL_KEY, tool_calls.c.runner, rows="runs"),
    tool_calls.c.status == CallStatus.RUNNING.value,
    tool_calls.c.lease_until > 0,  # a late beat must not revive a process that is known to be dead
)
BEAT_CALLS: Final = (
    update(tool_calls)
    .where(tuple_(*_CALL_KEY).in_(_beating.with_for_update(key_share=True, skip_locked=True)))
    .values(lease_until=db_now() + bindparam("ttl_s"))
)
"""Prolongs the leases of running writes whose rows are not locked."""

LOSE_CALL: Final = CHANGE_CALL.where(
    tool_calls.c.attempt >= bindparam("this_attempt"),
    tool_calls.c.runner == bindparam("this_runner"),
    tool_calls.c.status == CallStatus.RUNNING.value,
).values(lease_until=-db_now())
"""Ends the lease of a running write, whose process has died."""

# In a subquery, the clock is read only once, and Postgres can use the index on wake_at.
_now: Final = select(db_now()).scalar_subquery()
_unheld: Final = or_(turns.c.owner.is_(None), turns.c.lease_until.is_(None), turns.c.lease_until < _now)
_status: Final = turns.c.status.concat("")
"""An expression: with the plain column, Postgres would expect no due turn where nearly all turns have ended alike, and
read the whole table, or all that was ever due, rather than walk the index until there are enough."""

DUE: Final = (
    select(turns.c.id, turns.c.priority, turns.c.status, turns.c.wake_at)
    .where(
        turns.c.wake_at <= _now,
        _status.not_in(_FINAL),
        _unheld,
    )
    .order_by(turns.c.wake_at, turns.c.id)
    .limit(bindparam("most"))
)
"""Overdue turns, oldest first, without a lock."""

LOCK_DUE: Final = DUE.with_for_update(key_share=True, skip_locked=True)
"""The same, but locked, and without turns that somebody else has locked."""

GIVE_BACK: Final = (
    update(turns)
    .where(turns.c.id == bindparam("this_turn"), turns.c.wake_at > _now, _unheld)
    .values(wake_at=bindparam("since"))
)
"""Makes a turn overdue again after ``PUSH_DUE``, unless somebody is looking at it."""


def _seconds(value: float) -> ColumnElement[float]:
    return literal_column(str(value), turns.c.wake_at.type)


_backoff_s: Final[ColumnElement[float]] = bindparam("backoff_s", type_=turns.c.wake_at.type)
_longest_s: Final[ColumnElement[float]] = case(
    (turns.c.priority == Priority.BATCH, _seconds(LONGEST_PAUSE_S[Priority.BATCH])),
    else_=_seconds(LONGEST_PAUSE_S[Priority.INTERACTIVE]),
)
_doubled_s: Final = least(greatest(_backoff_s, db_now() - turns.c.created_at), _longest_s)
PUSH_DUE: Final = (
    update(turns)
    .where(turns.c.id.in_(bindparam("ids", expanding=True)))
    .values(wake_at=db_now() + case((turns.c.status == TurnStatus.QUEUED, _doubled_s), else_=_backoff_s))
)
"""Puts off the next look at turns.

The message of a turn that waits for a worker may be lost, or it may be in a long queue, which must not be filled with
copies. So it is sent again only when the turn is twice as old.
"""

_held: Final = HELD_TURNS.with_only_columns(turns.c.id).with_for_update(key_share=True, skip_locked=True)
BEAT_TURNS: Final = (
    update(turns)
    .where(turns.c.id.in_(_held))
    .values(lease_until=least(db_now() + bindparam("ttl_s"), turns.c.visit_deadline))
    .returning(*_VISIT_KEY, turns.c.cancel_requested)
)
"""Prolongs the leases of visits whose rows are not locked."""


def add_artifact(dialect: str) -> Insert:
    """The statement that adds an artifact, on ``sqlite`` or ``postgresql``; it does nothing if the id exists."""
    return insert_for(dialect, artifacts).on_conflict_do_nothing(index_elements=["id"])
