"""Whoever leaves a stream ends at once all that it consists of; nothing is left to the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import pytest
from starlette.requests import Request
from starlette.types import Message

from api_gateway.problems import Problem
from api_gateway.requests.body import read_body
from api_gateway.requests.places import BodyPlaces
from api_gateway.requests.turns import TurnRequest
from api_gateway.routes.artifacts import _body  # pyright: ignore[reportPrivateUsage]
from api_gateway.streams.download import Download
from api_gateway.streams.event_stream import EventStream, Position
from api_gateway.streams.live import LiveEvents
from api_gateway.turns.answers import Event, EventPage
from api_gateway.turns.heads import Head

Scene: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

EVENTS: Final = [Event(seq=seq, type="step.started", turn_id="t", at="", data={}) for seq in (1, 2)]


class _Turns:
    """A store in which one turn has two events."""

    async def head(self, _turn_id: str) -> Head:
        return Head(status="running", last_seq=2, asks_below=False)

    async def events(self, _turn_id: str, _query: object) -> EventPage:
        return EventPage(data=EVENTS, next=None)


async def _events_are_left() -> None:
    absent: Any = None
    stream = EventStream(
        turn_id="t",
        position=Position(seq=0),
        turns=cast("Any", _Turns()),
        heads=absent,
        live=LiveEvents(None),
        heartbeat_s=60.0,
        may_go_on=absent,
    )
    async with stream.events() as events:
        assert await anext(events) == EVENTS[0]


async def _artifact_is_left(after: int) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        yield b"first"
        yield b"second"
        yield b"third"

    coming = chunks()
    async with aclosing(_body(await anext(coming), coming)) as parts:
        assert [await anext(parts) for _ in range(after)] == [b"first", b"second"][:after]


async def _body_is_too_long() -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 1_000, "more_body": True}

    scope: dict[str, Any] = {"type": "http", "headers": [], "state": {"tenant": "t"}}
    read = read_body(TurnRequest, Request(scope, receive), BodyPlaces(), most_bytes=10, idle_s=60.0, with_digest=False)
    with pytest.raises(Problem, match="larger than 10 bytes"):
        await read


async def _live_events_are_wrong() -> None:
    again = asyncio.Event()

    async def entries(_redis_url: str, _on_begin: object) -> AsyncGenerator[list[Any]]:
        if again.is_set():
            await asyncio.Event().wait()
        again.set()
        yield [("1-0", None)]

    live = LiveEvents("redis://nowhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api_gateway.streams.live._entries", entries)
        reading = asyncio.create_task(live.run())
        await again.wait()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def _client_leaves_while_it_is_sent_to() -> None:
    async def parts() -> AsyncGenerator[bytes]:
        yield b"first"
        yield b"second"

    begun = asyncio.Event()

    async def receive() -> Message:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            begun.set()
            await asyncio.Event().wait()

    async def may_go_on() -> bool:
        return True

    await Download(parts(), may_go_on, media_type="text/plain")({"type": "http", "path": "/"}, receive, send)


SCENES: Final[dict[str, Scene]] = {
    "events are left": _events_are_left,
    "artifact is left at its beginning": partial(_artifact_is_left, 1),
    "artifact is left": partial(_artifact_is_left, 2),
    "client leaves while it is sent to": _client_leaves_while_it_is_sent_to,
    "body is too long": _body_is_too_long,
    "live events are wrong": _live_events_are_wrong,
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_what_is_left_is_closed_at_once(scene: Scene) -> None:
    """Python closes a generator that nobody can reach some time later, in a task of its own that nobody awaits."""
    assert asyncio.run(_left_by(scene)) == []


async def _left_by(scene: Scene) -> list[str]:
    left: list[str] = []
    usual = sys.get_asyncgen_hooks()

    def found(generator: Any) -> None:  # noqa: ANN401 - any of its kind
        left.append(generator.__qualname__)
        if usual.finalizer is not None:
            usual.finalizer(generator)

    sys.set_asyncgen_hooks(firstiter=usual.firstiter, finalizer=found)
    await scene()
    gc.collect()
    return left
