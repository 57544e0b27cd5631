"""Connections that ask for nothing are closed; those that ask are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from harness_worker.entrypoints.serving.listening import listen
from harness_worker.entrypoints.serving.request_heads import TimedHeads

HEAD_S = 0.3
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PART = REQUEST[:-2]
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_SIZE = b"zz\r\n"
UPGRADES = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AA==\r\n",
)


class Hasty(TimedHeads):
    """Waits as long as a test does."""

    head_s = HEAD_S
    upload_s = 100 * HEAD_S


async def _slow(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
    """Answers once a head would have been given up."""
    await asyncio.sleep(2 * HEAD_S)
    await _quick(scope, receive, send)


async def _quick(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401, ARG001 - as ASGI has it
    """Answers at once, whatever the body."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def connected(
    said: bytes,
    app: Any = _slow,  # noqa: ANN401 - as ASGI has it
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that a server of this process takes once ``said`` has come; idle ones outlive the test."""
    config = uvicorn.Config(app, http=Hasty, lifespan="off", log_config=None, timeout_keep_alive=600)
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as listener:
        listener.listen()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(said)
        serving = asyncio.create_task(asyncio.to_thread(server.run, [listener]))
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            server.should_exit = True
            await serving


def test_head_that_never_ends_is_not_waited_for() -> None:
    """The time is limited also if the head comes bit by bit."""

    async def asked() -> None:
        async with connected(PART) as (reader, _):
            assert await asyncio.wait_for(reader.read(), 30) == b""

    asyncio.run(asked())


def test_connection_that_cannot_be_served_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client would wait for an answer as long as it waits for any."""

    def fail(*_: object) -> None:
        raise MemoryError

    async def asked() -> None:
        async with connected(REQUEST, _quick) as (reader, _):
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 30) == b""

    monkeypatch.setattr(H11Protocol, "connection_made", fail)
    asyncio.run(asked())


def test_answer_may_take_longer_than_a_head_and_the_next_head_is_waited_for_anew() -> None:
    """Also while no byte of it has come: how long a connection may be idle is not the head's time."""

    async def asked() -> None:
        async with connected(REQUEST) as (reader, writer):
            for following in (REQUEST, PART):
                answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                assert answer.startswith(b"HTTP/1.1 204 ")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(), 2 * HEAD_S)
                writer.write(following)
            assert await asyncio.wait_for(reader.read(), 30) == b""

    asyncio.run(asked())


def test_head_that_begins_before_the_answer_before_it_is_not_waited_for_either() -> None:
    """Its first bytes came with the request before, and nothing comes after them."""

    async def asked() -> None:
        async with connected(REQUEST + PART) as (reader, _):
            answer = await asyncio.wait_for(reader.read(), 30)
            assert answer.startswith(b"HTTP/1.1 204 ")

    asyncio.run(asked())


def test_body_that_still_comes_after_its_answer_is_taken() -> None:
    """Who sends a long body hears the answer that came early only after it: a cut connection would hide it."""

    async def asked() -> None:
        async with connected(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n") as (reader, writer):
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            assert answer.startswith(b"HTTP/1.1 204 ")
            for _ in range(4):
                await asyncio.sleep(HEAD_S)
                writer.write(b"12345")
                await writer.drain()
            assert not reader.at_eof()

    asyncio.run(asked())


def test_body_that_breaks_after_its_answer_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """The request has its answer, and cannot get a second one."""

    async def asked() -> None:
        async with connected(CHUNKED, _quick) as (reader, writer):
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            assert answer.startswith(b"HTTP/1.1 204 ")
            writer.write(NO_SIZE)
            assert await asyncio.wait_for(reader.read(), 30) == b""

    asyncio.run(asked())
    assert _errors(caplog) == []


def test_body_that_breaks_before_its_answer_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The refusal is the only answer, although the application already has the request."""

    async def asked() -> None:
        async with connected(CHUNKED + NO_SIZE, _quick) as (reader, _):
            answer = await asyncio.wait_for(reader.read(), 30)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.count(b"HTTP/1.1") == 1

    asyncio.run(asked())
    assert _errors(caplog) == []


@pytest.mark.parametrize("offer", UPGRADES, ids=["h2c", "websocket"])
def test_request_that_offers_another_protocol_is_answered_in_this_one(
    caplog: pytest.LogCaptureFixture, offer: bytes
) -> None:
    """Some clients offer HTTP/2 with every request, which is no reason for a warning."""

    async def asked() -> None:
        async with connected(PART + offer + b"\r\n", _quick) as (reader, _):
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            assert answer.startswith(b"HTTP/1.1 204 ")

    asyncio.run(asked())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
