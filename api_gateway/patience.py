"""Waiting for an answer only so long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


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


def hear(task: asyncio.Future[Any]) -> None:
    """Take an error that nobody waits for any more: asyncio would log it as a bug."""
    if not task.cancelled():
        task.exception()
