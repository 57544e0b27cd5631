"""The fleet's figures for ``/metrics``, read from database, broker and Redis only when somebody asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.concurrency.coalescing import SingleFlight
from api_gateway.concurrency.patience import answered_within
from api_gateway.logs import in_a_line
from api_gateway.metrics.ended_turns import EndedTurns, Key, Totals
from api_gateway.metrics.queries import OLDEST_QUEUED, OPEN_TURNS, queues_in_use
from api_gateway.publisher import Publisher
from harness_worker.wire import (
    COUNTERS,
    DEFAULT_TOOL_QUEUE,
    FINALIZER_FAILURES,
    HOOK_FAILURES,
    LATE_RESULTS,
    TRACES_LOST,
    Priority,
    turn_queue,
)

TIMEOUT_S: Final = 5.0

TURN_QUEUES: Final = frozenset(turn_queue(priority) for priority in Priority)

COUNTED: Final[Mapping[str, str]] = {
    LATE_RESULTS: "Results of tools that came too late and were dropped.",
    HOOK_FAILURES: "Calls of hooks that failed and were ignored.",
    FINALIZER_FAILURES: "Steps at the end of turns that failed and were skipped.",
    TRACES_LOST: "Turns whose traces were lost.",
}
"""The help text of each counter that workers keep in Redis."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """The turns that have not ended.

    Args:
        number: How many there are, by agent and status.
        overdue: How many of them are overdue, likewise.
        oldest_queued_s: How long the oldest turn that could start has been waiting, in seconds, by priority.
    """

    number: Mapping[Key, float]
    overdue: Mapping[Key, float]
    oldest_queued_s: Mapping[Key, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The fleet at one moment; ``None`` where a source did not answer.

    Args:
        ended: Totals over the turns that have ended since this process began, as far as they are known.
        open_work: The turns that have not ended.
        queues: How many messages wait in each queue.
        counters: The counters that workers keep, by name; 0 for one that no worker has increased.
    """

    ended: Totals
    open_work: OpenWork | None
    queues: Mapping[str, int] | None
    counters: Mapping[str, int] | None


class FleetFigures:
    """Reads the figures; callers who ask while they are being read share the result.

    Args:
        engine: The database.
        publisher: Asks the broker for the lengths of its queues.
        redis_url: The Redis in which workers count what no transaction can count; ``None`` if there is none.
    """

    def __init__(self, engine: AsyncEngine, publisher: Publisher, redis_url: str | None) -> None:
        self._engine = engine
        self._publisher = publisher
        self._redis_url = redis_url
        self._ended = EndedTurns()
        self._tool_queues = {DEFAULT_TOOL_QUEUE}
        self._reading = SingleFlight(self._read)

    async def read(self) -> Figures:
        """The figures now; takes some seconds at most."""
        return await self._reading()

    async def _read(self) -> Figures:
        open_work = await _answer(self._ask_database(), "the database")
        names = sorted(TURN_QUEUES | self._tool_queues)
        queues, counters = await asyncio.gather(
            _answer(self._publisher.depths(names), "the broker"), _answer(self._ask_redis(), "Redis")
        )
        return Figures(ended=self._ended.totals, open_work=open_work, queues=queues, counters=counters)

    async def _ask_database(self) -> OpenWork:
        async with self._engine.connect() as connection:
            await self._ended.update(connection)
            in_use = await connection.execute(queues_in_use(connection.dialect.name))
            self._tool_queues |= set(in_use.scalars())
            return await _open_work(connection)

    async def _ask_redis(self) -> Mapping[str, int]:
        if self._redis_url is None:
            return dict.fromkeys(COUNTED, 0)
        client: Any = cast("Any", Redis).from_url(self._redis_url, socket_timeout=TIMEOUT_S, decode_responses=True)
        try:
            numbers: list[str | None] = await client.hmget(COUNTERS, list(COUNTED))
            return {name: int(number or 0) for name, number in zip(COUNTED, numbers, strict=True)}
        finally:
            await client.aclose()


async def _answer(asked: Coroutine[Any, Any, T], source: str) -> T | None:
    try:
        return await answered_within(TIMEOUT_S, asked)
    except Exception as error:  # noqa: BLE001 - never raises: the gap is reported, and the rest is exposed
        _log.warning("the metrics lack those of %s: %s", source, in_a_line(error))
        return None


async def _open_work(connection: AsyncConnection) -> OpenWork:
    turns = (await connection.execute(OPEN_TURNS)).all()
    ages = {row.priority: max(0.0, float(row.age_s)) for row in await connection.execute(OLDEST_QUEUED)}
    return OpenWork(
        number={(row.agent, row.status): float(row.number) for row in turns},
        overdue={(row.agent, row.status): float(row.overdue) for row in turns},
        oldest_queued_s={(priority.value,): ages.get(priority, 0.0) for priority in Priority},
    )
