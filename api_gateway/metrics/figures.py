"""What ``/metrics`` tells of the fleet: read from journal, broker and Redis when somebody asks, and only then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from redis.asyncio import Redis
from sqlalchemy import and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.logs import in_a_line
from api_gateway.metrics.ended_turns import EndedTurns, Totals
from api_gateway.patience import answered_within
from api_gateway.publisher import Publisher
from api_gateway.single_flight import SingleFlight
from harness_worker.schema import db_now, tool_calls, turns
from harness_worker.wire import (
    COUNTERS,
    DEFAULT_TOOL_QUEUE,
    FINALIZER_FAILURES,
    HOOK_FAILURES,
    LATE_RESULTS,
    TRACES_LOST,
    Priority,
    TurnStatus,
    turn_queue,
)

TIMEOUT_S: Final = 5.0
OVERDUE_S: Final = 10.0
"""A turn that somebody should have looked at so long ago, and nobody did, is overdue."""

TURN_QUEUES: Final = frozenset(turn_queue(priority) for priority in Priority)

COUNTED: Final[Mapping[str, str]] = {
    LATE_RESULTS: "Results of tools that came too late and were dropped.",
    HOOK_FAILURES: "Calls of hooks that failed and were ignored.",
    FINALIZER_FAILURES: "Steps of turns' ends that failed and were left out.",
    TRACES_LOST: "Turns whose traces were lost.",
}
"""What workers count in Redis, in words."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurns:
    """How many turns of an agent are in a status that is not final, and how many of them are overdue."""

    agent: str
    status: str
    number: int
    overdue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What has not ended.

    Args:
        open_turns: How many turns, by agent and status.
        oldest_queued_s: For how many seconds the turn of each priority that was posted first has been waiting to start.
    """

    open_turns: Sequence[OpenTurns]
    oldest_queued_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The fleet at one moment; ``None`` stands for what did not answer.

    Args:
        ended: What has ended since this process began, as far as it is known.
        journal: What has not ended.
        queues: Messages that wait, by queue.
        counters: What workers have counted, by name; 0 of what none has.
    """

    ended: Totals
    journal: Journal | None
    queues: Mapping[str, int] | None
    counters: Mapping[str, int] | None


class FleetFigures:
    """Reads the figures; who asks while they are read gets the same.

    Args:
        engine: The journal.
        publisher: The broker.
        redis_url: Where workers count what no transaction can; ``None`` if there is none.
    """

    def __init__(self, engine: AsyncEngine, publisher: Publisher, redis_url: str | None) -> None:
        self._engine = engine
        self._publisher = publisher
        self._redis_url = redis_url
        self._ended = EndedTurns()
        self._tool_queues = {DEFAULT_TOOL_QUEUE}
        self._reading = SingleFlight(self._read)

    async def read(self) -> Figures:
        """The figures now, within some seconds."""
        return await self._reading()

    async def _read(self) -> Figures:
        journal = await _answer(self._journal(), "the database")
        names = sorted(TURN_QUEUES | self._tool_queues)
        queues, counters = await asyncio.gather(
            _answer(self._publisher.depths(names), "the broker"), _answer(self._counters(), "Redis")
        )
        return Figures(ended=self._ended.totals, journal=journal, queues=queues, counters=counters)

    async def _journal(self) -> Journal:
        async with self._engine.connect() as connection:
            await self._ended.update(connection)
            self._tool_queues |= set((await connection.execute(_WAITED_FOR)).scalars())
            return Journal(open_turns=await _open_turns(connection), oldest_queued_s=await _oldest_queued_s(connection))

    async def _counters(self) -> Mapping[str, int]:
        if self._redis_url is None:
            return dict.fromkeys(COUNTED, 0)
        client: Any = cast("Any", Redis).from_url(self._redis_url, socket_timeout=TIMEOUT_S, decode_responses=True)
        try:
            told: list[str | None] = await client.hmget(COUNTERS, list(COUNTED))
            return {name: int(number or 0) for name, number in zip(COUNTED, told, strict=True)}
        finally:
            await client.aclose()


async def _answer(asked: Coroutine[Any, Any, T], whom: str) -> T | None:
    try:
        return await answered_within(TIMEOUT_S, asked)
    except Exception as error:  # noqa: BLE001 - never raises: figures that are missing say so, the others are told
        _log.warning("metrics without %s: %s", whom, in_a_line(error))
        return None


_OPEN: Final = turns.c.wake_at > -1
"""Never null before the end, always null after it; with a bound, for without one SQLite leaves the index alone."""

_WAITED_FOR: Final = (
    select(tool_calls.c.queue)
    .distinct()
    .where(tool_calls.c.turn_id.in_(select(turns.c.id).where(_OPEN)), tool_calls.c.status == "pending")
)
"""By a subquery, not a join, or SQLite would begin with the calls, which are many."""


async def _open_turns(connection: AsyncConnection) -> list[OpenTurns]:
    unheld = or_(turns.c.owner.is_(None), turns.c.lease_until < db_now())
    overdue = and_(turns.c.wake_at < db_now() - OVERDUE_S, unheld)
    query = (
        select(turns.c.agent, turns.c.status, func.count(), func.sum(case((overdue, 1), else_=0)))
        .where(_OPEN)
        .group_by(turns.c.agent, turns.c.status)
    )
    rows = await connection.execute(query)
    return [OpenTurns(agent=row[0], status=row[1], number=row[2], overdue=row[3]) for row in rows]


_SESSION: Final = (turns.c.tenant.concat(""), turns.c.session_id)
"""As an expression, or SQLite would read every turn there is by the index of sessions, to have no sorting to do."""

_IN_ORDER: Final = (
    select(
        *(turns.c[name] for name in ("priority", "status", "created_at", "number")),
        func.min(turns.c.number).over(partition_by=_SESSION).label("first_number"),
    )
    .where(_OPEN)
    .subquery("in_order")
)
"""The open turns, each beside the first of its session, which alone may begin; no turn that has ended is looked at."""

_OLDEST_QUEUED: Final = (
    select(_IN_ORDER.c.priority, db_now() - func.min(_IN_ORDER.c.created_at))
    .where(_IN_ORDER.c.status == TurnStatus.QUEUED, _IN_ORDER.c.number == _IN_ORDER.c.first_number)
    .group_by(_IN_ORDER.c.priority)
)


async def _oldest_queued_s(connection: AsyncConnection) -> dict[str, float]:
    ages: dict[str, float] = {row[0]: max(0.0, float(row[1])) for row in await connection.execute(_OLDEST_QUEUED)}
    return {priority.value: ages.get(priority, 0.0) for priority in Priority}
