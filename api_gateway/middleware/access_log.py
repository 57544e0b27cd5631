"""The outermost middleware: HEAD as GET without body, and one structured log line a request."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from time import perf_counter
from typing import Any, Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class AccessLog:
    """Logs method, path, status and time of each request as JSON; never a body, a query or a header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log: Any = structlog.wrap_logger(
            logging.getLogger("api_gateway.access"),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, then log."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # which the server answers if nobody else does
        started = perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            elapsed_ms = round((perf_counter() - started) * 1000, 1)
            log = self._log.debug if scope["path"] in QUIET else self._log.info
            log("request", method=scope["method"], path=scope["path"], status=status, elapsed_ms=elapsed_ms)


class HeadAsGet:
    """Serves HEAD as GET and drops the body (RFC 9110, section 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def bodiless(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        # An Accept of event-stream would keep the answer open for ever with nothing to say.
        as_get: MutableMapping[str, Any] = {**scope, "method": "GET", "headers": _without_accept(scope["headers"])}
        await self._app(as_get, receive, bodiless)


def _without_accept(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() != b"accept"]
