"""Downloads: answers of many parts that are cut off where they cannot go on."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.types import Receive, Scope, Send

from api_gateway.concurrency.patience import beating
from api_gateway.streams.permission import ASK_S, MayGoOn, Permission
from api_gateway.streams.streamed import Streamed

PATIENCE_S: Final = 1.0
"""How long a download waits to hear whether its key is still accepted, before it goes on without the answer."""

_log = logging.getLogger(__name__)


class BrokenOffError(Exception):
    """Says why the rest of a download cannot be sent."""


class Download(Streamed):
    """A body of many parts, which ends without its end if a part raises ``BrokenOffError``, or if its key is revoked.

    The server then closes the connection, so that the client does not take the body for the whole.

    Args:
        parts: The parts of the body.
        may_go_on: Tells whether the client is still let in.
        status_code: The answer's status.
        headers: Its headers.
        media_type: What the body is.
    """

    def __init__(
        self,
        parts: AsyncGenerator[str] | AsyncGenerator[bytes],
        may_go_on: MayGoOn,
        *,
        status_code: int = 200,
        headers: dict[str, str] | None = None,
        media_type: str,
    ) -> None:
        body = _permitted(parts, may_go_on)
        super().__init__(body, status_code=status_code, headers=headers, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, or as much of it as there is."""
        try:
            await super().__call__(scope, receive, send)
        except BrokenOffError as error:
            _log.warning("%s is cut off: %s", scope["path"], error)


async def _permitted(
    parts: AsyncGenerator[str] | AsyncGenerator[bytes], may_go_on: MayGoOn
) -> AsyncGenerator[str | bytes]:
    permission = Permission(may_go_on)
    try:
        async with aclosing(beating(parts, ASK_S)) as coming:  # which lets a read end that the client leaves
            async for part in coming:
                if not await permission.holds(PATIENCE_S):
                    raise BrokenOffError("its API key is no longer accepted")
                if part is not None:
                    yield part
    finally:
        permission.leave()
