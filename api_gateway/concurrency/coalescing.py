"""Request coalescing: callers who ask the same before it is answered share readings.

================  =======================================  ============================================================
use               for                                      a caller is answered by
================  =======================================  ============================================================
``SingleFlight``  one question, the same for all           the reading under way, even if it began before the question
``Gathered``      one id each, of which many can be read   a reading that begins after the question, for all who asked
                  at once                                  by then; one at a time
``LateAnswers``   one caller who asks again and again,     the reading under way, or a new one; a caller who leaves
                  and waits only so long each time         ends it
================  =======================================  ============================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Generic, TypeVar

from api_gateway.concurrency.patience import swallow_late_error

MOMENT_S: Final = 0.05
"""How long ``Gathered`` waits for more callers before it reads."""

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
        """The result of the reading under way, or else of one that begins now; a caller who leaves does not end it."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._read())
            self._under_way.add_done_callback(swallow_late_error)  # all who asked may have left
        return await _result(self._under_way)


class Gathered(Generic[T]):
    """Reads what many ask for by id: one reading at a time, each for all who asked since the previous one began.

    Args:
        read: Reads what is known of some ids; unknown ids are left out.
    """

    def __init__(self, read: Callable[[frozenset[str]], Coroutine[Any, Any, Mapping[str, T]]]) -> None:
        self._read = read
        self._wanted: set[str] = set()
        self._next: asyncio.Task[Mapping[str, T]] | None = None
        self._under_way: asyncio.Task[Mapping[str, T]] | None = None

    async def of(self, wanted: str) -> T | None:
        """What is known of an id, by a reading that begins after this call; raises what the reading raises."""
        self._wanted.add(wanted)
        if self._next is None or self._next.done():  # done: it failed before it began to read
            self._next = asyncio.create_task(self._gather(self._under_way))
            self._next.add_done_callback(swallow_late_error)  # all who asked may have left
        return (await _result(self._next)).get(wanted)

    async def _gather(self, before: asyncio.Task[Mapping[str, T]] | None) -> Mapping[str, T]:
        await asyncio.sleep(MOMENT_S)
        if before is not None:
            await asyncio.wait({before})
        self._under_way, self._next = self._next, None
        wanted, self._wanted = frozenset(self._wanted), set()
        return await self._read(wanted)


class LateAnswers(Generic[T]):
    """One question asked again and again, at most one at a time; an answer may come while nobody waits for it.

    Args:
        ask: Asks the question.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T] | None = None

    async def within(self, limit_s: float) -> T:
        """The answer to the open question, or else to one asked now; raises the error if asking failed.

        Raises:
            TimeoutError: No answer came within ``limit_s`` seconds; the question stays open.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(swallow_late_error)
        await asyncio.wait({self._asking}, timeout=limit_s)
        if not self._asking.done():
            raise TimeoutError(f"no answer within {limit_s:g} s")
        answered, self._asking = self._asking, None
        return answered.result()

    def leave(self) -> None:
        """Cancel the open question."""
        if self._asking is not None:
            self._asking.cancel()


async def _result(reading: asyncio.Task[T]) -> T:
    """A reading's result. ``asyncio.shield`` would log the error of one whose caller has left, since Python 3.14."""
    await asyncio.wait({reading})
    return reading.result()
