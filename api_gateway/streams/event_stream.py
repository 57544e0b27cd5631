"""A turn's events, past and present: SQL for the past, then live, with SQL for whatever the live events lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from sqlalchemy.exc import SQLAlchemyError

from api_gateway.concurrency.coalescing import Gathered, LateAnswers
from api_gateway.concurrency.patience import beating
from api_gateway.requests.queries import EventsQuery
from api_gateway.streams.live import Feed, LiveEvent, LiveEvents, Wake
from api_gateway.streams.sse import Told
from api_gateway.turns.heads import Head
from api_gateway.turns.store import Turns
from harness_worker.wire import TERMINAL_EVENTS

POLL_S: Final = 1.0
ASK_S: Final = 5.0
"""Streams end within this long, plus one database read, after their key is revoked."""

PAGE: Final = 100
"""How many events a reader who does not read may hold in memory."""


MayGoOn: TypeAlias = Callable[[], Coroutine[Any, Any, bool]]
"""Whether whoever asked is still let in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a client has been told.

    Args:
        seq: The last event that it has.
        has_caught_up: Whether the store was read to its end; from then on the turn's head says whether it has more.
        is_over: Whether nothing follows.
    """

    seq: int
    has_caught_up: bool = False
    is_over: bool = False

    def behind(self, event: Told) -> Position:
        """Where a client is that was told the event; a hint moves nobody."""
        if event.seq is None:
            return self
        return replace(self, seq=event.seq, is_over=event.type in TERMINAL_EVENTS)

    def caught_up(self, head: Head | None) -> Position:
        """Where a client is that was told all that the store had, whose head was read before."""
        is_over = head is None or (head.has_ended and self.seq >= head.last_seq)
        return replace(self, has_caught_up=True, is_over=self.is_over or is_over)

    def lacks(self, head: Head | None) -> bool:
        """Whether the store has something to tell, be it that nothing follows."""
        return head is None or head.has_ended or head.last_seq > self.seq


@dataclass(slots=True, kw_only=True)
class EventStream:
    """One client's stream, listened to once.

    Args:
        turn_id: Whose events.
        position: How far the client has been told.
        turns: The past.
        heads: Whether there is more of it, asked for many streams at once.
        live: The present.
        heartbeat_s: A heartbeat is given when nothing else was for so long.
        may_go_on: Whether the client may hear more.

    Attributes:
        is_refused: Whether the stream ended because the client may not.
    """

    turn_id: str
    position: Position
    turns: Turns
    heads: Gathered[Head]
    live: LiveEvents
    heartbeat_s: float
    may_go_on: MayGoOn
    is_refused: bool = False

    @asynccontextmanager
    async def events(self) -> AsyncGenerator[AsyncGenerator[Told | None]]:
        """What happens, until the terminal event has been given or the client may hear no more; ``None``: a heartbeat.

        Whatever happens from when this is entered on is among it.
        """
        with self.live.watch(self.turn_id) as feed:
            async with aclosing(beating(self._told(feed), self.heartbeat_s)) as told:
                yield told

    async def _told(self, feed: Feed) -> AsyncGenerator[Told]:
        heads = LateAnswers(partial(self._head, feed))
        permission = _Permission(self.may_go_on, feed)
        woken: LiveEvent | Wake = Wake.LOST  # what was before this
        try:
            while await permission.holds():
                async for told in self._news(woken, heads):
                    yield told
                if self.position.is_over or self.live.stopping:
                    return
                woken = await feed.next(min(POLL_S, self.heartbeat_s))
            self.is_refused = True
        finally:
            heads.leave()
            permission.leave()

    async def _news(self, woken: LiveEvent | Wake, heads: LateAnswers[Head | None]) -> AsyncIterator[Told]:
        """What is to be told now."""
        if isinstance(woken, LiveEvent) and woken.seq in (None, self.position.seq + 1):
            self.position = self.position.behind(woken)
            yield woken
        elif await self._is_behind(woken, heads):
            async for event in self._from_store():
                yield event

    async def _is_behind(self, woken: LiveEvent | Wake, heads: LateAnswers[Head | None]) -> bool:
        """Whether the store has more: as a live event shows, or else its head, once the store was read."""
        if isinstance(woken, LiveEvent):
            return woken.seq is not None and woken.seq > self.position.seq
        if not self.position.has_caught_up:
            return True
        try:
            return self.position.lacks(await heads.within(0))
        except (SQLAlchemyError, TimeoutError):
            return False  # The next look tries again, or hears the answer; the client has lost nothing.

    async def _head(self, feed: Feed) -> Head | None:
        """What the store says, which is looked at behind the live events that came meanwhile."""
        try:
            return await self.heads.of(self.turn_id)
        finally:
            feed.offer(Wake.ANSWERED)

    async def _from_store(self) -> AsyncIterator[Told]:
        try:
            head = await self.turns.head(self.turn_id)
            while True:
                page = await self.turns.events(self.turn_id, EventsQuery(after=self.position.seq, limit=PAGE))
                for event in page.data:
                    self.position = self.position.behind(event)
                    yield event
                if page.next is None:
                    break
        except SQLAlchemyError:
            return  # The next look tries again; the client has lost nothing.
        self.position = self.position.caught_up(head)


class _Permission:
    """Whether a client may hear more: asked every few seconds, and as it was known last until the answer has come.

    Args:
        may_go_on: Asks.
        feed: Is woken by the answer.
    """

    def __init__(self, may_go_on: MayGoOn, feed: Feed) -> None:
        self._may_go_on = may_go_on
        self._feed = feed
        self._answers = LateAnswers(self._ask)
        self._clock = asyncio.get_running_loop().time
        self._asked_at = self._clock()

    async def holds(self) -> bool:
        """Whether it does; waits for no answer."""
        if self._clock() - self._asked_at < ASK_S:
            return True
        try:
            holds = await self._answers.within(0)
        except TimeoutError:
            return True  # A later look hears the answer.
        self._asked_at = self._clock()
        return holds

    async def _ask(self) -> bool:
        try:
            return await self._may_go_on()
        finally:
            self._feed.offer(Wake.ANSWERED)

    def leave(self) -> None:
        """Cancel what is asked."""
        self._answers.leave()
