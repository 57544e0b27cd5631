"""A proper answer for requests that are cut short because the process stops."""

from __future__ import annotations

from asyncio import CancelledError

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_gateway.problems import cut_short


class AnswerCutShort:
    """Middleware that answers a request that the server cancels: it would say 500 and log a traceback itself.

    The server cancels those that have not ended when its time to stop is over. An answer that has begun stays as it is.

    Args:
        app: The application that answers all others.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except CancelledError:
            if scope["type"] != "http":
                raise
            if not has_begun:
                await cut_short(Request(scope)).response(scope["path"])(scope, receive, send)
