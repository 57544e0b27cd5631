"""An answer that is sent as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Send


class Streamed(StreamingResponse):
    """Closes its body at its end, also if the client leaves: Starlette leaves that to the garbage collector.

    Args:
        body: The parts of the body.
        status_code: The answer's status.
        headers: Its headers.
        media_type: What the body is.
    """

    def __init__(
        self,
        body: AsyncGenerator[Any],
        *,
        status_code: int = 200,
        headers: dict[str, str] | None = None,
        media_type: str,
    ) -> None:
        super().__init__(body, status_code, headers, media_type)
        self._body = body

    async def stream_response(self, send: Send) -> None:
        """Send the body, and close it."""
        async with aclosing(self._body):
            await super().stream_response(send)
