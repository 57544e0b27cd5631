"""One reading at a time, for whoever asks meanwhile: askers do not queue, nor add to what is asked of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from api_gateway.patience import hear

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Reads something that is the same for all who ask.

    Args:
        read: Reads it.
    """

    def __init__(self, read: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._read = read
        self._under_way: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """What the reading gives that is under way, or else one that begins now; an asker who leaves ends none."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._read())
            self._under_way.add_done_callback(hear)  # all who asked may have left
        return await asyncio.shield(self._under_way)
