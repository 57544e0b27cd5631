"""How each request was answered, for the code that counts it, and for the access log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})

_access_log = logging.getLogger("api_gateway.access")


class Answered:
    """Middleware that reports how each request was answered, once it is over.

    Args:
        app: The application that answers.
        report: Called with the request's scope, the answer's status, and how long the request took, in seconds.
    """

    def __init__(self, app: ASGIApp, *, report: Callable[[Scope, int, float], None]) -> None:
        self._app = app
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, then report."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # the server's own answer if the application gives none
        started = perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._report(scope, status, perf_counter() - started)


def log_access(scope: Scope, status: int, elapsed_s: float) -> None:
    """Log method, path, status and time of a request; never a body, a query or a header."""
    level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
    elapsed_ms = round(elapsed_s * 1000, 1)
    facts = {"method": scope["method"], "path": scope["path"], "status": status, "elapsed_ms": elapsed_ms}
    _access_log.log(level, "request", extra=facts)
