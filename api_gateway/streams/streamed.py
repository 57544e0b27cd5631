"""An answer that is sent as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Send


class Streamed(StreamingResponse):
    """Closes its body at its end, also if the client leaves: Starlette leaves that to the garbage collector."""

    body_iterator: AsyncGenerator[Any]  # pyright: ignore[reportIncompatibleVariableOverride] - only such are given

    async def stream_response(self, send: Send) -> None:
        """Send the body, and close it."""
        async with aclosing(self.body_iterator):
            await super().stream_response(send)
