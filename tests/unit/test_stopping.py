"""Requests that are cut short because the process stops."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_gateway.middleware.stopping import AnswerCutShort

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def cancelled(app: ASGIApp, **state: bool) -> list[Message]:
    """What is sent for a request to this application that the server cancels."""
    sent: list[Message] = []
    begun = asyncio.Event()

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await app(scope, receive, send)
        await asyncio.Event().wait()

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    async def serve() -> None:
        scope: Scope = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": [], "state": state}
        request = asyncio.ensure_future(AnswerCutShort(asked)(scope, receive, send))
        await begun.wait()
        request.cancel()
        await request

    asyncio.run(serve())
    return sent


async def silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """An application that has not answered yet."""


async def begins(_scope: Scope, _receive: Receive, send: Send) -> None:
    """An application whose answer has begun."""
    await send(START)


@pytest.mark.parametrize(
    ("state", "header", "told"),
    [
        ({}, (b"retry-after", b"1"), "send the request again"),
        ({"may_be_made": True}, (b"x-should-retry", b"false"), "the turn may have been made"),
    ],
)
def test_request_that_is_cut_short_is_told_whether_to_try_again(
    state: dict[str, bool], header: tuple[bytes, bytes], told: str
) -> None:
    """OpenAI's client would repeat any other 5xx by itself, and thereby run a second turn."""
    start, body = cancelled(silent, **state)
    assert start["status"] == 503
    assert {header, (b"connection", b"close")} <= set(start["headers"])
    assert told in json.loads(body["body"])["error"]["message"]


def test_answer_that_has_begun_is_only_ended() -> None:
    """A second one would not be understood."""
    assert cancelled(begins) == [START]
