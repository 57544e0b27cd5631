"""Work of the process that goes on as long as a context, whatever ends it before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

AGAIN_S: Final = 1.0
"""How long after an error the work begins again, in seconds."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def lasting(
    work: Callable[[], Coroutine[Any, Any, None]], *, name: str, drain_s: float = 0.0
) -> AsyncGenerator[None]:
    """Do the work in a task while the context lasts; it begins again if an error ends it.

    Args:
        work: The work.
        name: The task's name.
        drain_s: How long it may take to end by itself once the context ends, in seconds; then it is cancelled.
    """
    begun: list[asyncio.Task[None]] = []

    def begin() -> None:
        task = asyncio.create_task(work(), name=name)
        begun[:] = [task]
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or not begun:
            return
        asyncio.get_running_loop().call_later(AGAIN_S, lambda: begin() if begun else None)
        with suppress(Exception):  # memory may still be short
            _log.error("%s begin again after an error", name, exc_info=error)

    begin()
    try:
        yield
    finally:
        last = begun.pop()
        await asyncio.wait([last], timeout=drain_s)
        last.cancel()
        await asyncio.gather(last, return_exceptions=True)
