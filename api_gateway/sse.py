"""A turn's events as server-sent events: SQL for the past, then live, with SQL for whatever the stream lost."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from sqlalchemy.exc import SQLAlchemyError

from api_gateway.answers import Event
from api_gateway.coalescing import Gathered, LateAnswers
from api_gateway.live import Feed, LiveEvent, LiveEvents
from api_gateway.patience import beating
from api_gateway.requests import EventsQuery
from api_gateway.turns.heads import Head
from api_gateway.turns.store import Turns
from harness_worker.wire import TERMINAL_EVENTS, rfc3339

POLL_S: Final = 1.0
ASK_S: Final = 5.0
"""Streams end within this long, plus one database read, after their key is revoked."""

PAGE: Final = 100
"""How many events a reader who does not read may hold in memory."""
OPENING: Final = ": open\n\n"
HEARTBEAT: Final = ": heartbeat\n\n"
SSE_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Nothing between here and the client shall keep a stream, or hold it back."""

_BREAKS: Final = {char: f"\\u{ord(char):04x}" for char in "\u0085\u2028\u2029"}
"""What JSON may hold as it is, and some clients take for the end of a line."""

Told: TypeAlias = Event | LiveEvent
MayGoOn: TypeAlias = Callable[[], Coroutine[Any, Any, bool]]
"""Whether whoever asked is still let in."""

_WEIGHT: Final = re.compile(r"\bq\s*=\s*(\d(?:\.\d{0,3})?)\s*(?:;|$)")


def unbroken(document: str) -> str:
    """A JSON document that no client's reader of lines can split."""
    for char, escaped in _BREAKS.items():
        document = document.replace(char, escaped)
    return document


def data_line(document: str) -> str:
    """A frame's last line, with a JSON document, and the end of the frame."""
    return f"data: {unbroken(document)}\n\n"


def wants_stream(accept: str) -> bool:
    """Whether an ``Accept`` header asks for server-sent events before JSON: by weight, then by order."""
    wishes = [_wish(part) for part in accept.lower().split(",")]
    asked = [wish for wish in wishes if wish[0] in ("text/event-stream", "application/json") and wish[1] > 0]
    return bool(asked) and max(asked, key=lambda wish: wish[1])[0] == "text/event-stream"


def _wish(part: str) -> tuple[str, float]:
    """A media range and its weight; one that is no number counts as 1."""
    kind, _, options = part.partition(";")
    weight = _WEIGHT.search(options)
    return kind.strip(), float(weight[1]) if weight else 1.0


@dataclass(slots=True, kw_only=True)
class EventStream:
    """One client's stream.

    Args:
        turn_id: Whose events.
        after: The last ``seq`` the client has.
        turns: The past.
        heads: Whether there is more of it, asked for many streams at once.
        live: The present.
        heartbeat_s: A comment is sent when nothing else was for so long.
        may_go_on: Whether the client may hear more.

    Attributes:
        is_refused: Whether the stream ended because the client may not.
    """

    turn_id: str
    after: int
    turns: Turns
    heads: Gathered[Head]
    live: LiveEvents
    heartbeat_s: float
    may_go_on: MayGoOn
    is_refused: bool = False
    _has_read: bool = False

    async def frames(self) -> AsyncGenerator[str]:
        """The stream's frames, until the terminal event has been given, or the client may hear no more."""
        async with aclosing(self.events()) as events:
            await anext(events)
            yield OPENING
            async for told in events:
                yield HEARTBEAT if told is None else _framed(told)

    async def events(self) -> AsyncGenerator[Told | None]:
        """What happens, until the terminal event has been given.

        ``None`` is yielded once the subscription is in place, and again as each heartbeat.
        """
        with self.live.watch(self.turn_id) as feed:
            yield None
            async with aclosing(beating(self._told(feed), self.heartbeat_s)) as told:
                async for each in told:
                    yield each

    async def _told(self, feed: Feed) -> AsyncGenerator[Told]:
        """Every event and hint, until the terminal one has been given, or the client may hear no more."""
        clock = asyncio.get_running_loop().time
        heads = LateAnswers(partial(self._head, feed))
        permits = LateAnswers(partial(self._permit, feed))
        event: LiveEvent | None = None
        asked_at = clock()
        try:
            while True:
                if clock() - asked_at >= ASK_S:
                    with suppress(TimeoutError):  # a later look hears the answer
                        self.is_refused, asked_at = not await permits.within(0), clock()
                if self.is_refused:
                    return
                ended = False
                async for told, is_last in self._react(event, heads):
                    ended = is_last
                    if told is not None:
                        yield told
                if ended or self.live.stopping:
                    return
                event = await feed.next(min(POLL_S, self.heartbeat_s))
        finally:
            heads.leave()
            permits.leave()

    async def _react(
        self, event: LiveEvent | None, heads: LateAnswers[Head | None]
    ) -> AsyncIterator[tuple[Told | None, bool]]:
        """What follows from a live event, or from none: what to tell, each with whether it is the last."""
        if event is not None and event.seq is None:
            yield event, False
        elif event is not None and event.seq == self.after + 1:
            self.after += 1
            yield event, event.type in TERMINAL_EVENTS
        elif await self._is_behind(event, heads):
            async for pair in self._from_store():
                yield pair

    async def _is_behind(self, event: LiveEvent | None, heads: LateAnswers[Head | None]) -> bool:
        """Whether the store has more, as a live event shows; or as far as it says, once it was read."""
        if event is not None and event.seq is not None:
            return event.seq > self.after
        if not self._has_read:
            return True
        try:
            head = await heads.within(0)
        except (SQLAlchemyError, TimeoutError):
            return False  # The next look tries again, or hears the answer; the client has lost nothing.
        return head is None or head.has_ended or head.last_seq > self.after

    async def _permit(self, feed: Feed) -> bool:
        """Whether whoever asked is still let in; the answer is heard at once."""
        try:
            return await self.may_go_on()
        finally:
            feed.offer(None)

    async def _head(self, feed: Feed) -> Head | None:
        """What the store says, which is looked at behind the live events that came meanwhile."""
        try:
            return await self.heads.of(self.turn_id)
        finally:
            feed.offer(None)

    async def _from_store(self) -> AsyncIterator[tuple[Told | None, bool]]:
        try:
            head = await self.turns.head(self.turn_id)
            while True:
                page = await self.turns.events(self.turn_id, EventsQuery(after=self.after, limit=PAGE))
                for event in page.data:
                    self.after = event.seq
                    yield event, event.type in TERMINAL_EVENTS
                if page.next is None:
                    break
            self._has_read = True
        except SQLAlchemyError:
            return  # The next look tries again; the client has lost nothing.
        if head is None or (head.has_ended and self.after >= head.last_seq):
            yield None, True


def _framed(event: Told) -> str:
    data = event.model_dump_json() if isinstance(event, Event) else _json(event)
    identity = "" if event.seq is None else f"id: {event.seq}\n"
    return f"event: {event.type}\n{identity}{data_line(data)}"


def _json(event: LiveEvent) -> str:
    head = {} if event.seq is None else {"seq": event.seq}
    body = {**head, "type": event.type, "turn_id": event.turn_id, "at": rfc3339(event.at)}
    return json.dumps({**body, "data": json.loads(event.data)}, ensure_ascii=False, separators=(",", ":"))
