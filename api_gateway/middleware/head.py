"""HEAD for every endpoint that has GET."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

UNHEEDED: Final = (b"accept", b"range")
"""Headers that HEAD drops: with an Accept of event-stream the answer would stay open for ever with nothing to say, and
Range is defined for GET alone (RFC 9110, section 14.2)."""


class _HeadersSentError(Exception):
    """Stops the application where its body would begin."""


class HeadAsGet:
    """Serves HEAD as GET, but only up to the body (RFC 9110, section 9.3.2), so that nothing is read to be dropped."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def headers_alone(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _HeadersSentError

        state = {**scope.get("state", {}), "is_head": True}
        heeded = _heeded(scope["headers"])
        as_get: MutableMapping[str, Any] = {**scope, "method": "GET", "headers": heeded, "state": state}
        with suppress(_HeadersSentError):
            await self._app(as_get, receive, headers_alone)


def is_head(request: Request) -> bool:
    """Whether the request is served as GET, but its body will not be sent."""
    return getattr(request.state, "is_head", False)


def _heeded(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in UNHEEDED]
