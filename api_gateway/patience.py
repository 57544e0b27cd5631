"""Waiting for an answer only so long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar, cast

from anyio import CancelScope

T = TypeVar("T")

_END: Final = object()


async def answered_within(limit_s: float, asked: Awaitable[T]) -> T:
    """The answer to what was asked, or its error.

    Unlike ``asyncio.wait_for`` it does not wait for the end of what it cancels: a driver whose server stands still asks
    that server to end the statement, and waits for the answer.

    Raises:
        TimeoutError: There was none for ``limit_s`` seconds; the asking is cancelled, and ends when it can.
    """
    task = asyncio.ensure_future(asked)
    task.add_done_callback(hear)
    try:
        await asyncio.wait({task}, timeout=limit_s)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise TimeoutError(f"no answer within {limit_s:g} s")


class LateAnswers(Generic[T]):
    """One question, asked again and again, of which at most one is open: an answer may come when nobody waits for it.

    Args:
        ask: Asks it.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[T] | None = None

    async def within(self, limit_s: float) -> T:
        """The answer to the question that is open, or else to one that is asked now; or its error.

        Raises:
            TimeoutError: There was none for ``limit_s`` seconds; the question stays open.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(hear)
        await asyncio.wait({self._asking}, timeout=limit_s)
        if not self._asking.done():
            raise TimeoutError(f"no answer within {limit_s:g} s")
        answered, self._asking = self._asking, None
        return answered.result()

    def leave(self) -> None:
        """Cancel what is open."""
        if self._asking is not None:
            self._asking.cancel()


async def beating(things: AsyncGenerator[T], every_s: float) -> AsyncGenerator[T | None]:
    """What comes, and ``None`` whenever nothing came for so many seconds, whatever it waits for."""
    coming = asyncio.ensure_future(anext(things, _END))
    try:
        while True:
            await asyncio.wait({coming}, timeout=every_s)
            if not coming.done():
                yield None
                continue
            thing = coming.result()
            if thing is _END:
                return
            yield cast("T", thing)
            coming = asyncio.ensure_future(anext(things, _END))
    finally:
        coming.cancel()
        with CancelScope(shield=True):  # whose client left is cancelled by such a scope, at each await anew
            await asyncio.wait({coming})  # what runs cannot be closed
            await things.aclose()


def hear(task: asyncio.Future[Any]) -> None:
    """Take an error that nobody waits for any more: asyncio would log it as a bug."""
    if not task.cancelled():
        task.exception()
