"""Many askers, few questions: what is asked of SQL within a moment is asked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

from api_gateway.patience import hear

MOMENT_S: Final = 0.05

T = TypeVar("T")


class Gathered(Generic[T]):
    """Reads what many ask for by id: one reading at a time, each for all who asked since the one before began.

    Args:
        read: Reads what is known of some ids; what is unknown is left out.
    """

    def __init__(self, read: Callable[[frozenset[str]], Coroutine[Any, Any, Mapping[str, T]]]) -> None:
        self._read = read
        self._wanted: set[str] = set()
        self._next: asyncio.Task[Mapping[str, T]] | None = None
        self._under_way: asyncio.Task[Mapping[str, T]] | None = None

    async def of(self, wanted: str) -> T | None:
        """What is known of an id, read after this was asked; raises what the reading raises."""
        self._wanted.add(wanted)
        if self._next is None:
            self._next = asyncio.create_task(self._gather(self._under_way))
            self._next.add_done_callback(hear)  # all who asked may have left
        return (await asyncio.shield(self._next)).get(wanted)

    async def _gather(self, before: asyncio.Task[Mapping[str, T]] | None) -> Mapping[str, T]:
        await asyncio.sleep(MOMENT_S)
        if before is not None:
            await asyncio.wait({before})
        self._under_way, self._next = self._next, None
        wanted, self._wanted = frozenset(self._wanted), set()
        return await self._read(wanted)
