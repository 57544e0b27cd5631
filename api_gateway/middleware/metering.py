"""Counting requests and open streams, for ``/metrics``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER: Final = "other"
"""Stands for methods and paths that only the client knows: there may be any number of them."""

FAILED: Final = 500


class Traffic:
    """What has been asked of this process.

    Attributes:
        answered: Requests by method, route (with its placeholders) and status.
        readers: Streams of events that are open.
    """

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, ...]] = Counter()
        self.readers = 0

    @contextmanager
    def reading(self) -> Generator[None]:
        """Within the context, one more stream is open."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1


class Meter:
    """Middleware: counts each answer."""

    def __init__(self, app: ASGIApp, *, traffic: Traffic) -> None:
        self._app = app
        self._answered = traffic.answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, then count."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = FAILED

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._answered[method, _route(scope), str(status)] += 1


def _route(scope: Scope) -> str:
    """The route's path as it is written in the code; the router leaves the route in the scope."""
    return getattr(scope.get("route"), "path", OTHER)
