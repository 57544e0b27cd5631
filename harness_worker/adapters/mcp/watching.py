"""A transport that reports when the server closes it; the SDK's session only fails later requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The transport, unchanged except that ``on_end`` is called when nothing more will be read from it."""
    async with transport as (reads, writes):
        yield _Watched(reads, on_end), writes


class _Watched:
    def __init__(self, reads: Any, on_end: Callable[[], None]) -> None:  # noqa: ANN401 - the SDK's stream
        self._reads = reads
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else the SDK's stream has
        return getattr(self._reads, name)

    async def __aenter__(self) -> _Watched:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._reads.__aexit__(*error)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - the SDK's message
        try:
            return await self._reads.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._on_end()
            raise
