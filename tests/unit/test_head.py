"""HEAD: what GET would answer, without the work of its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api_gateway.middleware.answered import Answered
from api_gateway.middleware.head import HeadAsGet
from api_gateway.problems import Problem, install_problem_handlers

HEADERS = {"Content-Length": "3", "ETag": '"1"'}
Answer = tuple[int, dict[str, str]]


class Pieces:
    """A body that counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0

    async def body(self) -> AsyncGenerator[str]:
        """Three bytes."""
        self.begun += 1
        for piece in "abc":
            yield piece


class SpeaksAsgi:
    """Middleware: the version of ASGI that a server speaks, of which Starlette's streams have two ways."""

    def __init__(self, app: ASGIApp, version: str) -> None:
        self._app = app
        self._version = version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        await self._app({**scope, "asgi": {"version": "3.0", "spec_version": self._version}}, receive, send)


def app_of(pieces: Pieces, version: str, counted: list[int]) -> FastAPI:
    """An application with a stream, a document and a refusal."""
    app = FastAPI()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(pieces.body(), headers=HEADERS)

    @app.get("/document")
    async def document() -> dict[str, int]:
        return {"a": 1}

    @app.get("/refused")
    async def refused() -> None:
        raise Problem("not_found", "there is none")

    install_problem_handlers(app)
    app.add_middleware(Answered, report=lambda _scope, status, _elapsed_s: counted.append(status))
    app.add_middleware(HeadAsGet)
    app.add_middleware(SpeaksAsgi, version=version)
    return app


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_head_has_the_headers_of_get_and_begins_no_body(version: str) -> None:
    """A stream is not begun, so it reads no file and no row; whatever the answer is, it is counted and no error."""
    pieces, counted = Pieces(), list[int]()

    async def run() -> dict[str, tuple[Answer, Answer]]:
        transport = httpx2.ASGITransport(app_of(pieces, version, counted))
        async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
            found: dict[str, tuple[Answer, Answer]] = {}
            for path in ("/stream", "/document", "/refused", "/nowhere"):
                head = await client.head(path)
                assert head.content == b""
                assert pieces.begun == 0
                got = await client.get(path)
                found[path] = ((head.status_code, dict(head.headers)), (got.status_code, dict(got.headers)))
                pieces.begun = 0
            return found

    found = asyncio.run(run())
    for head, got in found.values():
        assert head == got
    assert found["/stream"][0][1]["content-length"] == "3"
    assert counted == [200, 200, 200, 200, 404, 404, 404, 404]
