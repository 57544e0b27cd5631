"""The queries behind ``/metrics``: every figure of the fleet that comes from SQL.

Unfinished turns are found by the index of ``wake_at``, finished ones by the index of ``finished_at``; no query reads
any other turns, however many there are.
"""

# ruff: noqa: ANN401 - selects of many columns
from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, any_, case, func, or_, select

from harness_worker.schema import agents, db_now, tool_calls, turns
from harness_worker.wire import TurnStatus

OVERDUE_S: Final = 10.0
"""A turn is overdue when it has been due for a look for longer than this and nobody holds it."""

TOKEN_KINDS: Final = ("input", "output", "cache_read", "cache_write")

NOW: Final = select(db_now())
CATALOGUE: Final = select(agents.c.name, agents.c.tools)

_IS_OPEN: Final = turns.c.wake_at > -1
"""``wake_at`` is null once a turn has ended, and only then. The bound is there because SQLite needs one to use the
index."""

_IS_UNHELD: Final = or_(turns.c.owner.is_(None), turns.c.lease_until < db_now())
_IS_OVERDUE: Final = and_(turns.c.wake_at < db_now() - OVERDUE_S, _IS_UNHELD)

OPEN_TURNS: Final = (
    select(
        turns.c.agent,
        turns.c.status,
        func.count().label("number"),
        func.sum(case((_IS_OVERDUE, 1), else_=0)).label("overdue"),
    )
    .where(_IS_OPEN)
    .group_by(turns.c.agent, turns.c.status)
)
"""How many turns of each agent are in each unfinished status, and how many of them are overdue."""

_SESSION: Final = (turns.c.tenant.concat(""), turns.c.session_id)
"""An expression: with the plain column SQLite would read every turn by the index of sessions to avoid sorting."""

_IN_ORDER: Final = (
    select(
        *(turns.c[name] for name in ("priority", "status", "created_at", "number")),
        func.min(turns.c.number).over(partition_by=_SESSION).label("first_number"),
    )
    .where(_IS_OPEN)
    .subquery("in_order")
)
"""The open turns, each with the number of the first open one of its session, which alone may begin."""

OLDEST_QUEUED: Final = (
    select(_IN_ORDER.c.priority, (db_now() - func.min(_IN_ORDER.c.created_at)).label("age_s"))
    .where(_IN_ORDER.c.status == TurnStatus.QUEUED, _IN_ORDER.c.number == _IN_ORDER.c.first_number)
    .group_by(_IN_ORDER.c.priority)
)
"""By priority, the age in seconds of the oldest turn that could begin and has not."""


def queues_in_use(dialect: str) -> Any:
    """The queues in which calls of open turns wait.

    The calls must be looked up by their turns. Given a join, SQLite would begin with the calls. Given ``IN``, Postgres
    would make it a join that reads every call once some thousand turns are open, but it looks up an array's elements.
    """
    open_turns = select(turns.c.id).where(_IS_OPEN)
    is_open = (
        tool_calls.c.turn_id == any_(func.array(open_turns.scalar_subquery()))
        if dialect == "postgresql"
        else tool_calls.c.turn_id.in_(open_turns)
    )
    return select(tool_calls.c.queue).distinct().where(is_open, tool_calls.c.status == "pending")


def ended_after(since: float, until: float | None = None) -> ColumnElement[bool]:
    """Whether a turn ended later than ``since``, and no later than ``until`` if that is given."""
    later = turns.c.finished_at > since
    return later if until is None else and_(later, turns.c.finished_at <= until)


def slice_end(since: float, until: float, most: int) -> Any:
    """When the last of the first ``most`` turns between the two times ended; no row if there are fewer."""
    ended_at = turns.c.finished_at
    return select(ended_at).where(ended_after(since, until)).order_by(ended_at).offset(most - 1).limit(1)


def ended_turns(ended: ColumnElement[bool]) -> Any:
    """How many turns ended, and the sums of their times, dollars and tokens, by agent, status and stop reason."""
    started_at = func.coalesce(turns.c.started_at, turns.c.finished_at)
    labels = (turns.c.agent, turns.c.status, turns.c.stop_reason)
    tokens = [func.sum(turns.c.used[f"{kind}_tokens"].as_float()).label(kind) for kind in TOKEN_KINDS]
    return (
        select(
            *labels,
            func.count().label("number"),
            func.sum(turns.c.finished_at - turns.c.created_at).label("seconds"),
            func.sum(started_at - turns.c.created_at).label("queued_s"),
            func.sum(turns.c.used["dollars"].as_float()).label("dollars"),
            *tokens,
        )
        .where(ended)
        .group_by(*labels)
    )


def ended_calls(ended: ColumnElement[bool]) -> Any:
    """How many calls the ended turns have made, by tool and kind of outcome."""
    kind = tool_calls.c.outcome["kind"].as_string().label("kind")
    joined = tool_calls.join(turns, turns.c.id == tool_calls.c.turn_id)
    return (
        select(tool_calls.c.tool, kind, func.count().label("number"))
        .select_from(joined)
        .where(ended, tool_calls.c.step >= turns.c.first_step)  # a fork's earlier calls are its origin's
        .group_by(tool_calls.c.tool, kind)
    )
