"""Time limits: an answer within so long, and a heartbeat while nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Final, TypeVar, cast

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
    task.add_done_callback(swallow_late_error)
    try:
        await asyncio.wait({task}, timeout=limit_s)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise TimeoutError(f"no answer within {limit_s:g} s")


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


def swallow_late_error(task: asyncio.Future[Any]) -> None:
    """A callback for a task whose error nobody may wait for any more: asyncio would log it as never retrieved."""
    if not task.cancelled():
        task.exception()
