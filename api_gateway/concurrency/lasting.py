"""Work of the process that goes on as long as a context, whatever ends it before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from api_gateway.concurrency.patience import ended

AGAIN_S: Final = 1.0
"""How long after an error the work begins again, in seconds."""

_ENDS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends the process, or belongs to its end."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def lasting(
    work: Callable[[], Coroutine[Any, Any, None]], *, name: str, drain_s: float = 0.0
) -> AsyncGenerator[None]:
    """Do the work in a task while the context lasts; it begins again if an error ends it.

    To await what somebody else has cancelled is such an error: for asyncio it looks as if the task were cancelled.

    Args:
        work: The work.
        name: The task's name.
        drain_s: How long it may take to end by itself once the context ends, in seconds; then it is cancelled.
    """
    is_over = False

    async def go_on() -> None:
        error: BaseException | None = None
        while True:
            try:
                if error is not None:
                    await asyncio.sleep(AGAIN_S)
                    if is_over:
                        return None
                    with suppress(Exception):  # memory may still be short
                        _log.error("%s begin again after an error", name, exc_info=error)
                    error = None
                return await work()
            except BaseException as why:  # nothing more is done here: memory may be short
                if task.cancelling() or isinstance(why, _ENDS):
                    raise
                error = why

    task = asyncio.create_task(go_on(), name=name)
    try:
        yield
    finally:
        is_over = True
        await asyncio.wait([task], timeout=drain_s)
        await ended(task)
