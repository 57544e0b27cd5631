"""Waiting for an answer only so long: what was asked may take its time to end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api_gateway.patience import answered_within


async def stubborn(cancelled: asyncio.Event, released: asyncio.Event) -> None:
    """Never answers, and when it is cancelled ends in an error, late."""
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.set()
        await released.wait()
        raise OSError("nobody there")


def test_answer_and_error_come_out() -> None:
    """As if it had been awaited."""

    async def seven() -> int:
        return 7

    async def fails() -> int:
        raise OSError("nobody there")

    assert asyncio.run(answered_within(5.0, seven())) == 7
    with pytest.raises(OSError, match="nobody there"):
        asyncio.run(answered_within(5.0, fails()))


def test_what_does_not_answer_is_cancelled_and_not_waited_for() -> None:
    """Nobody hears of the error that it ends in, nor is it logged as one that nobody took."""
    untaken: list[dict[str, Any]] = []

    async def asked() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: untaken.append(context))
        cancelled, released = asyncio.Event(), asyncio.Event()
        with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
            await answered_within(0.01, stubborn(cancelled, released))
        await cancelled.wait()
        released.set()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait(rest)

    asyncio.run(asked())
    assert untaken == []


def test_who_leaves_cancels_what_he_asked() -> None:
    """It would run on for nobody."""

    async def asked() -> None:
        cancelled, released = asyncio.Event(), asyncio.Event()
        released.set()
        asking = asyncio.create_task(answered_within(60.0, stubborn(cancelled, released)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        await asyncio.wait_for(cancelled.wait(), 5.0)

    asyncio.run(asked())
