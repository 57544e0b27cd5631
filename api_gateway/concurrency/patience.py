"""Time limits: an answer within a given time, and heartbeats while nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Final, TypeVar, cast

from anyio import CancelScope

T = TypeVar("T")

_END: Final = object()

_AGAIN_S: Final = 0.5
"""How long what was cancelled may go on before it is cancelled again, in seconds."""


async def answered_within(limit_s: float, asked: Awaitable[T]) -> T:
    """The result of an awaitable, or its error.

    Unlike ``asyncio.wait_for`` it does not wait for the end of what it cancels: a driver whose server hangs asks that
    server to end the statement, and waits for the answer.

    Raises:
        TimeoutError: There was none within ``limit_s`` seconds; the awaitable is cancelled, and ends when it can.
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
    """The items of ``things`` as they come, and ``None`` whenever none came for ``every_s`` seconds."""
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
        with CancelScope(shield=True):  # if the client left, such a scope cancels this task at each await anew
            await ended(coming)  # a generator that is running cannot be closed
            await things.aclose()


async def ended(task: asyncio.Future[Any]) -> None:
    """Cancel a task until it ends: what it awaits may miss a cancel, as ``asyncio.wait_for`` may up to Python 3.11."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
    swallow_late_error(task)


def swallow_late_error(task: asyncio.Future[Any]) -> None:
    """For a task that nobody may be waiting for: asyncio would log its error as never retrieved."""
    if not task.cancelled():
        task.exception()
