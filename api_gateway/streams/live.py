"""Live events: each process has one reader of the workers' Redis stream, and fans it out to those who wait for a turn.

The stream may lose events and may be down for hours, so everybody who waits here also looks into SQL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, cast

from redis.asyncio import Redis

from harness_worker.wire import EVENT_STREAM, TERMINAL_EVENTS, WAITING_EVENTS

BLOCK_MS: Final = 5_000
SOCKET_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 2.0
BATCH: Final = 500
QUEUE_SIZE: Final = 256
BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)

RESTING_EVENTS: Final = TERMINAL_EVENTS | WAITING_EVENTS
"""The types of events after which nothing happens until somebody else acts, so that there is nothing to wait for."""

_RESTS: Final = re.compile("|".join(f'"{re.escape(kind)}"' for kind in sorted(RESTING_EVENTS)))

Entry = tuple[str, dict[str, str]]
"""The id of an entry in the stream, and its fields."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """One event, or hint, that an entry of the stream reports.

    Args:
        turn_id: The turn.
        seq: Its number if it is durable; ``None`` for a hint, which is never repeated.
        type: Its type, such as ``turn.completed``.
        at: When it happened, seconds since the epoch.
        data: Its data, the text of a JSON object.
    """

    turn_id: str
    seq: int | None
    type: str
    at: float
    data: str


class Wake(Enum):
    """Why a waiter is woken without an event; whatever the reason, SQL may have more than it has heard."""

    IDLE = auto()
    """Nothing came for as long as the waiter was willing to wait."""

    LOST = auto()
    """Events were lost."""

    ANSWERED = auto()
    """A question that the waiter asked elsewhere was answered."""

    STOPPING = auto()
    """The process stops."""


class Feed:
    """The queue of one waiter's events, and of whatever else wakes it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[LiveEvent | Wake] = asyncio.Queue(QUEUE_SIZE)

    def offer(self, thing: LiveEvent | Wake) -> None:
        """Add an event; if the queue is full, because the waiter is too slow, all become one ``Wake.LOST``."""
        if self._queue.full():
            while not self._queue.empty():
                self._queue.get_nowait()
            thing = Wake.LOST
        self._queue.put_nowait(thing)

    async def next(self, timeout_s: float) -> LiveEvent | Wake:
        """The next event, or why there is none."""
        try:
            async with asyncio.timeout(timeout_s):  # Python 3.11's wait_for misses a cancel that comes with an event
                return await self._queue.get()
        except TimeoutError:
            return Wake.IDLE


class LiveEvents:
    """The process's only reader, and its waiters. If ``stopping`` is true, waiters must answer now.

    Args:
        redis_url: Where workers publish; ``None`` if nowhere, so that waiters rely on SQL alone.
        on_rest: Called with the id of each turn that comes to rest, whether or not anybody waits for it.
    """

    def __init__(self, redis_url: str | None, on_rest: Callable[[str], object] | None = None) -> None:
        self._redis_url = redis_url
        self._on_rest = on_rest
        self._feeds: dict[str, set[Feed]] = defaultdict(set)
        self.stopping = False

    @contextmanager
    def watch(self, turn_id: str) -> Generator[Feed]:
        """A feed of the turn's events from now on, for as long as the context lasts."""
        feed = Feed()
        self._feeds[turn_id].add(feed)
        try:
            yield feed
        finally:
            self._feeds[turn_id].discard(feed)
            if not self._feeds[turn_id]:
                del self._feeds[turn_id]

    def stop(self) -> None:
        """Wake every waiter, to answer now."""
        self.stopping = True
        self._wake_all(Wake.STOPPING)

    async def run(self) -> None:
        """Read until cancelled; reconnects for ever."""
        failures = 0
        while self._redis_url is not None:
            try:
                async with aclosing(_entries(self._redis_url, partial(self._wake_all, Wake.LOST))) as batches:
                    async for batch in batches:
                        failures = 0
                        self._fan_out(batch)
            except Exception as error:  # noqa: BLE001 - never raises: without this reader everybody relies on SQL
                log = _log.warning if failures == 0 else _log.debug
                with suppress(Exception):  # memory may still be short
                    self._wake_all(Wake.LOST)
                    log("live events are not available; answers come from SQL alone: %s", error)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1

    def _fan_out(self, batch: list[Entry]) -> None:
        for _, fields in batch:
            if self._on_rest is not None and _RESTS.search(fields.get("told", "")):
                self._on_rest(fields.get("turn", ""))
            feeds = self._feeds.get(fields.get("turn", ""), ())
            for event in _events_of(fields) if feeds else ():
                for feed in feeds:
                    feed.offer(event)

    def _wake_all(self, why: Wake) -> None:
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.offer(why)


async def _entries(redis_url: str, on_begin: Callable[[], object]) -> AsyncGenerator[list[Entry]]:
    """The stream's entries from now on; those before ``on_begin`` is called are not among them."""
    client: Any = cast("Any", Redis).from_url(
        redis_url,
        decode_responses=True,
        encoding_errors="replace",  # a single entry that is not UTF-8 must not stop the reader
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        client_name="harness-gateway",
    )
    try:
        newest = await client.xrevrange(EVENT_STREAM, count=1)
        last = newest[0][0] if newest else "0-0"
        on_begin()
        while True:
            reply = await client.xread({EVENT_STREAM: last}, count=BATCH, block=BLOCK_MS)
            entries = _of_stream(reply)
            last = entries[-1][0] if entries else last
            yield entries
    finally:
        await client.aclose()


def _of_stream(reply: Any) -> list[Entry]:  # noqa: ANN401 - RESP2 gives a list, RESP3 a mapping
    if not reply:
        return []
    stream: Any = cast("Any", reply)[EVENT_STREAM][0] if isinstance(reply, dict) else reply[0][1]
    return stream


def _events_of(fields: Mapping[str, str]) -> list[LiveEvent | Wake]:
    """The events of an entry, in the format of ``adapters/redis/events``; any other format sends the waiter to SQL."""
    try:
        return [_event(fields["turn"], *told) for told in json.loads(fields["told"])]
    except (KeyError, ValueError, TypeError):
        return [Wake.LOST]


def _event(turn_id: str, seq: Any, kind: Any, at: Any, data: Any) -> LiveEvent:  # noqa: ANN401 - any JSON
    if not (isinstance(seq, int | None) and isinstance(kind, str) and isinstance(data, str)):
        raise TypeError("not an event")
    return LiveEvent(turn_id=turn_id, seq=seq, type=kind, at=float(at), data=data)
