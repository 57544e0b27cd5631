"""A turn's events, past and present: from SQL for the past, then live, and from SQL again if live events are lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api_gateway.concurrency.coalescing import Gathered, LateAnswers
from api_gateway.concurrency.patience import beating
from api_gateway.requests.queries import EventsQuery
from api_gateway.streams.live import Feed, LiveEvent, LiveEvents, Wake
from api_gateway.streams.permission import MayGoOn, Permission
from api_gateway.streams.sse import Told
from api_gateway.turns.heads import Head
from api_gateway.turns.store import Turns
from harness_worker.wire import TERMINAL_EVENTS

POLL_S: Final = 1.0
PAGE: Final = 100
"""How many events a client that does not read may hold in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a client's stream has come.

    Args:
        seq: The number of the last event that it has.
        has_caught_up: Whether the store was read to its end; from then on the turn's head says whether there is more.
        is_over: Whether nothing follows.
    """

    seq: int
    has_caught_up: bool = False
    is_over: bool = False

    def behind(self, event: Told) -> Position:
        """The position after the event; a hint does not change it."""
        if event.seq is None:
            return self
        return replace(self, seq=event.seq, is_over=event.type in TERMINAL_EVENTS)

    def caught_up(self, head: Head | None) -> Position:
        """The position once the store was read to its end; ``head`` was read before that."""
        is_over = head is None or (head.has_ended and self.seq >= head.last_seq)
        return replace(self, has_caught_up=True, is_over=self.is_over or is_over)

    def lacks(self, head: Head | None) -> bool:
        """Whether the store has news: further events, or that nothing follows."""
        return head is None or head.has_ended or head.last_seq > self.seq


@dataclass(slots=True, kw_only=True)
class EventStream:
    """One client's stream; it can be iterated once.

    Args:
        turn_id: The turn whose events are sent.
        position: How far the stream has come.
        turns: The store of past events.
        heads: Reads whether the store has more, for many streams at once.
        live: The live events.
        heartbeat_s: After how many seconds without anything else a heartbeat is given.
        may_go_on: Tells whether the client is still let in.

    Attributes:
        is_refused: Whether the stream ended because the client is no longer let in.
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
        """The events, up to the terminal one or until the client is no longer let in; ``None`` is a heartbeat.

        Everything that happens after the context is entered is included.
        """
        with self.live.watch(self.turn_id) as feed:
            async with aclosing(beating(self._events(feed), self.heartbeat_s)) as told:
                yield told

    async def _events(self, feed: Feed) -> AsyncGenerator[Told]:
        heads = LateAnswers(partial(self._head, feed))
        permission = Permission(partial(self._may_go_on, feed))
        woken: LiveEvent | Wake = Wake.LOST  # so that past events are read first
        try:
            while await permission.holds():
                async with aclosing(self._news(woken, heads)) as news:
                    async for told in news:
                        yield told
                if self.position.is_over or self.live.stopping:
                    return
                woken = await feed.next(min(POLL_S, self.heartbeat_s))
            self.is_refused = True
        finally:
            heads.leave()
            permission.leave()

    async def _news(self, woken: LiveEvent | Wake, heads: LateAnswers[Head | None]) -> AsyncGenerator[Told]:
        """The events to send now."""
        if isinstance(woken, LiveEvent) and woken.seq in (None, self.position.seq + 1):
            self.position = self.position.behind(woken)
            yield woken
        elif await self._is_behind(woken, heads):
            async with aclosing(self._from_store()) as events:
                async for event in events:
                    yield event

    async def _is_behind(self, woken: LiveEvent | Wake, heads: LateAnswers[Head | None]) -> bool:
        """Whether the store has more, as a live event shows, or else the turn's head once the store was read."""
        if isinstance(woken, LiveEvent):
            return woken.seq is not None and woken.seq > self.position.seq
        if not self.position.has_caught_up:
            return True
        try:
            return self.position.lacks(await heads.within(0))
        except (SQLAlchemyError, TimeoutError):
            return False  # The next look tries again, or gets the answer; the client has lost nothing.

    async def _head(self, feed: Feed) -> Head | None:
        """The head from the store; the stream looks at it only after the live events that came meanwhile."""
        try:
            return await self.heads.of(self.turn_id)
        finally:
            feed.offer(Wake.ANSWERED)

    async def _may_go_on(self, feed: Feed) -> bool:
        """Whether the client is still let in; the answer wakes the stream."""
        try:
            return await self.may_go_on()
        finally:
            feed.offer(Wake.ANSWERED)

    async def _from_store(self) -> AsyncGenerator[Told]:
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
