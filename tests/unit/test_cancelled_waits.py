"""Whoever is cancelled while it waits ends, even if what it waits for has just come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import pytest
from starlette.requests import Request
from starlette.types import Message

from api_gateway.artifacts import ArtifactFiles
from api_gateway.publisher import Publisher
from api_gateway.requests.body import read_body
from api_gateway.requests.places import BodyPlaces
from api_gateway.requests.turns import TurnRequest
from api_gateway.streams.live import Feed, Wake
from api_gateway.webhooks.deliverer import Deliverer

Wait: TypeAlias = tuple[Coroutine[Any, Any, object], Callable[[], object]]
"""What waits, and what gives it that for which it waits."""

STEPS: Final = 5
"""More passes of the event loop than an answer needs to arrive."""


def _for_the_broker() -> Wait:
    publisher: Any = Publisher("memory://", 60.0)
    answered = Future[None]()
    publisher._threads = _threads_with(answered)
    return publisher.check(), lambda: answered.set_result(None)


def _for_an_artifact() -> Wait:
    files: Any = ArtifactFiles("memory://")
    answered = Future[bytes]()
    files._threads = _threads_with(answered)
    return files.read("key", 0, 1), lambda: answered.set_result(b"x")


def _threads_with(answered: Future[Any]) -> SimpleNamespace:
    def submit(*_work: object) -> Future[Any]:
        return answered

    return SimpleNamespace(submit=submit)


def _for_a_body() -> Wait:
    parts = asyncio.Queue[Message]()
    scope: dict[str, Any] = {"type": "http", "headers": [], "state": {"tenant": "t"}}
    body = read_body(
        TurnRequest, Request(scope, parts.get), BodyPlaces(), most_bytes=100, idle_s=60.0, with_digest=False
    )
    return body, lambda: parts.put_nowait({"type": "http.request", "body": b"{}", "more_body": True})


def _for_a_webhook_that_is_due() -> Wait:
    nothing: Any = None  # is sent
    deliverer: Any = Deliverer(nothing, nothing, nothing)
    deliverer._poll_at = asyncio.get_running_loop().time() + 60.0
    return deliverer._round(), lambda: deliverer.poke("t")


def _for_a_live_event() -> Wait:
    feed = Feed()
    return feed.next(60.0), lambda: feed.offer(Wake.ANSWERED)


WAITS: Final = (_for_the_broker, _for_an_artifact, _for_a_body, _for_a_webhook_that_is_due, _for_a_live_event)


@pytest.mark.parametrize("wait", WAITS)
def test_wait_that_is_cancelled_as_its_answer_comes_ends(wait: Callable[[], Wait]) -> None:
    """Otherwise what was told to end would go on: at shutdown, or for a client that has left."""

    async def is_over(steps: int) -> bool:
        waits, answer = wait()
        waiting = asyncio.create_task(waits)
        await _pass(STEPS)
        assert not waiting.done()
        answer()
        await _pass(steps)
        if waiting.done():
            return True
        waiting.cancel()
        await _pass(STEPS)
        return waiting.cancelled()

    async def all_are_over() -> list[int]:
        return [steps for steps in range(STEPS) if not await is_over(steps)]

    assert asyncio.run(all_are_over()) == []


async def _pass(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
