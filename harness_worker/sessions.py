"""The SQL of a session's order, for code that adds turns (the gateway, the engine alone) and for the store.

Adding a turn first locks its session's row, then the unfinished turns before it, in order; the end of a turn locks that
turn, then the one after it. So places are given one at a time, and there are no deadlocks.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from sqlalchemy import Text, bindparam, exists, func, literal_column, or_, select, true, union_all, update
from sqlalchemy.sql.dml import ReturningInsert

from harness_worker.schema import db_now, insert_for, messages, past_messages, past_turns, sessions, turns

TakePlace: TypeAlias = ReturningInsert[*tuple[Any, ...]]

_OF_SESSION: Final = (turns.c.tenant == bindparam("of_tenant"), turns.c.session_id == bindparam("of_session"))
_UNFINISHED: Final = (*_OF_SESSION, turns.c.finished_at.is_(None))
NEXT: Final = (
    select(turns.c.id, turns.c.priority)
    .where(*_UNFINISHED, turns.c.number > bindparam("after_number"))
    .order_by(turns.c.number)
    .limit(literal_column("1"))
)
"""The next unfinished turn, as (id, priority)."""

UNFINISHED: Final = (
    select(turns.c.id, turns.c.priority).where(*_UNFINISHED).order_by(turns.c.number).with_for_update(key_share=True)
)
"""The session's unfinished turns, as (id, priority), in order, locked."""

FOLLOW: Final = update(turns).where(turns.c.id.in_(bindparam("ahead", expanding=True))).values(followed=true())
"""Makes turns, each the last unfinished one of its session, wake the next one when they end.

Turns before them do so already, since the next ones were added. The row is written even if the turn has had a follower,
which ended first: an end of the turn that does not see the new follower yet is then decided again.
"""

INTERRUPT: Final = (
    update(turns)
    .where(*_UNFINISHED)
    .values(followed=true(), cancel_requested=true(), wakes=turns.c.wakes + 1, wake_at=db_now())
)
"""The same for all unfinished turns of a session, and asks them to stop. :data:`UNFINISHED` must have locked them."""

_EARLIER_TURN: Final = turns.alias("earlier")
FOLLOWS_UNFINISHED: Final = exists().where(
    _EARLIER_TURN.c.tenant == turns.c.tenant,
    _EARLIER_TURN.c.session_id == turns.c.session_id,
    _EARLIER_TURN.c.number < turns.c.number,
    _EARLIER_TURN.c.finished_at.is_(None),
)
"""A condition on ``turns``: an earlier turn of the same session has not ended."""

IS_BEHIND: Final = select(exists().where(*_UNFINISHED, turns.c.number < bindparam("before_number")))
"""The same for one turn, given its place in its session."""

_THIS: Final = select(turns.c.number).where(turns.c.id == bindparam("turn_id")).scalar_subquery()
LEFT_BEHIND: Final = select(turns.c.id).where(
    *_UNFINISHED,
    turns.c.number < _THIS,
    turns.c.deadline_at < db_now(),
    or_(turns.c.lease_until.is_(None), turns.c.lease_until < db_now()),
)
"""The unfinished turns before a given one whose deadlines have passed and that nobody holds."""

_EARLIER: Final = (*_OF_SESSION, turns.c.number < bindparam("before_number"), turns.c.finished_at.is_not(None))

# A fork is the first turn of its session; the turns copied from its origin are earlier than all of them.
_FORK: Final = (*_OF_SESSION, turns.c.number == literal_column("1"))
_GIVEN: Final = past_turns.join(turns, turns.c.id == past_turns.c.turn_id)
_START: Final = func.coalesce(
    select(turns.c.number)
    .where(*_EARLIER, turns.c.carried.is_not(None))
    .order_by(turns.c.number.desc())
    .limit(literal_column("1"))
    .scalar_subquery(),
    select(past_turns.c.number)
    .select_from(_GIVEN)
    .where(*_FORK, past_turns.c.carried.is_not(None))
    .order_by(past_turns.c.number.desc())
    .limit(literal_column("1"))
    .scalar_subquery(),
    literal_column(str(-(2**31))),
)
"""The number of the last turn that carries what prompts need of those before it; if none does, below all numbers."""

_HOW_IT_ENDED: Final = ("number", "status", "output_text", "preparation", "stop_reason", "carried")
_turns_before: Final = union_all(
    select(*(past_turns.c[name] for name in _HOW_IT_ENDED))
    .select_from(_GIVEN)
    .where(*_FORK, past_turns.c.number >= _START),
    select(*(turns.c[name] for name in _HOW_IT_ENDED)).where(*_EARLIER, turns.c.number >= _START),
).subquery("turns_before")
_messages_before: Final = union_all(
    select(past_messages.c.number, past_messages.c.position, past_messages.c.role, past_messages.c.content)
    .join(turns, turns.c.id == past_messages.c.turn_id)
    .where(*_FORK, past_messages.c.number >= _START),
    select(turns.c.number, messages.c.position, messages.c.role, messages.c.content)
    .join(turns, turns.c.id == messages.c.turn_id)
    .where(*_EARLIER, turns.c.number >= _START),
).subquery("messages_before")

PAST_TURNS: Final = select(_turns_before).order_by(_turns_before.c.number)
"""The earlier turns that have ended, and those that the session was forked with, as far as prompts need them: from the
last one with ``carried`` on, in order, as (number, status, output_text, preparation, stop_reason, carried)."""

PAST_MESSAGES: Final = select(_messages_before).order_by(_messages_before.c.number, _messages_before.c.position)
"""Their messages, as (number, position, role, content), in order."""

WAKE_NEXT: Final = (
    update(turns)
    .where(turns.c.id.in_(NEXT.with_only_columns(turns.c.id).with_for_update(key_share=True)))
    .values(wakes=turns.c.wakes + 1, wake_at=db_now())
)
"""Makes the next turn due for a look. Its row is locked when it is selected, so one that ends meanwhile is skipped."""


def take_place(dialect: str) -> TakePlace:
    """The statement that adds a turn to a session, made with its first turn; it returns (the turn's number, now).

    Args:
        dialect: ``sqlite`` or ``postgresql``.
    """
    first = insert_for(dialect, sessions).values(
        tenant=bindparam("of_tenant"), id=bindparam("of_session"), turns=1, created_at=db_now()
    )
    return _or_later(first)


def take_place_of_new(dialect: str) -> TakePlace:
    """The same, unless the turn ``turn_id`` exists: then it adds nothing and returns no row."""
    values = (bindparam(name, type_=Text) for name in ("of_tenant", "of_session"))
    is_new = ~exists().where(turns.c.id == bindparam("turn_id"))
    first = insert_for(dialect, sessions).from_select(
        ["tenant", "id", "turns", "created_at"], select(*values, literal_column("1"), db_now()).where(is_new)
    )
    return _or_later(first)


def _or_later(first: Any) -> TakePlace:  # noqa: ANN401 - an insert of either dialect
    later = first.on_conflict_do_update(index_elements=["tenant", "id"], set_={"turns": sessions.c.turns + 1})
    return later.returning(sessions.c.turns, db_now())


def take_places(dialect: str) -> ReturningInsert[*tuple[Any, ...]]:
    """The statement that adds turns to each of several sessions; it returns (session, its last turn's number).

    Its parameters are rows of ``tenant``, ``id`` and ``turns``, the number to add. Callers that order them by id cannot
    deadlock with each other.

    Args:
        dialect: ``sqlite`` or ``postgresql``.
    """
    first = insert_for(dialect, sessions).values(created_at=db_now())
    added = {"turns": sessions.c.turns + first.excluded.turns}
    later = first.on_conflict_do_update(index_elements=["tenant", "id"], set_=added)
    return later.returning(sessions.c.id, sessions.c.turns)


UNFINISHED_OF_SESSIONS: Final = (
    select(turns.c.id, turns.c.session_id)
    .where(
        turns.c.tenant == bindparam("of_tenant"),
        turns.c.session_id.in_(bindparam("of_sessions", expanding=True)),
        turns.c.finished_at.is_(None),
    )
    .order_by(turns.c.session_id, turns.c.number)
    .with_for_update(key_share=True)
)
"""The unfinished turns of several sessions, as (id, session), locked in the order of ``UNFINISHED``."""
