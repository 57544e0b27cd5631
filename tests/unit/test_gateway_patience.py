"""Waiting for an answer only so long: what was asked may take its time to end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from api_gateway.concurrency.patience import answered_within, beating


async def stubborn(cancelled: asyncio.Event, released: asyncio.Event) -> None:
    """Never answers, and when it is cancelled ends in an error, late."""
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.set()
        await released.wait()
        raise OSError("nobody there")


def test_answer_and_error_come_out() -> None:
    """The caller gets them as if it had awaited the thing itself."""

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
        await asyncio.wait_for(cancelled.wait(), 30.0)

    asyncio.run(asked())


def test_beat_is_heard_while_nothing_comes() -> None:
    """Whatever the next thing waits for is neither hurried nor asked again."""

    async def listened() -> list[int | None]:
        released = asyncio.Event()

        async def things() -> AsyncGenerator[int]:
            yield 1
            await released.wait()
            yield 2

        heard: list[int | None] = []
        async for thing in beating(things(), 0.01):
            heard.append(thing)
            if heard[-2:] == [None, None] and 1 in heard:
                released.set()
        return heard

    heard = asyncio.run(listened())
    # The first thing may be late too.
    assert heard[heard.index(1) :][:3] == [1, None, None]
    assert [thing for thing in heard if thing is not None] == [1, 2]


def test_who_leaves_ends_what_was_to_come() -> None:
    """That also holds while the next thing is being waited for."""

    async def left() -> bool:
        ended = asyncio.Event()

        async def things() -> AsyncGenerator[int]:
            try:
                await asyncio.Event().wait()
                yield 1
            finally:
                ended.set()

        async with aclosing(beating(things(), 0.01)) as heard:
            assert await anext(heard) is None
        return ended.is_set()

    assert asyncio.run(left())


def test_who_is_cancelled_ends_what_was_to_come() -> None:
    """By a scope that cancels each await anew, as Starlette's does when a client leaves."""

    async def left() -> bool:
        ended = asyncio.Event()

        async def things() -> AsyncGenerator[int]:
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 3_600)
                yield 1
            finally:
                await asyncio.sleep(0)
                ended.set()

        async def listen(begun: asyncio.Event) -> None:
            async with aclosing(beating(things(), 0.01)) as heard:
                async for _ in heard:
                    begun.set()

        async with anyio.create_task_group() as group:
            begun = asyncio.Event()
            group.start_soon(listen, begun)
            await begun.wait()
            group.cancel_scope.cancel()
        return ended.is_set()

    assert asyncio.run(left())


def test_who_leaves_ends_what_misses_its_first_cancel() -> None:
    """A driver may swallow one, for example if its answer comes in the same moment."""

    async def left() -> int:
        cancels = 0

        async def things() -> AsyncGenerator[int]:
            nonlocal cancels
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancels += 1
                    if cancels == 2:
                        raise
            yield 1

        async with aclosing(beating(things(), 0.01)) as heard:
            assert await anext(heard) is None
        return cancels

    assert asyncio.run(left()) == 2


def test_error_of_what_was_left_is_nobodys() -> None:
    """A database may go away while a query is told to stop; whoever asked has left, and no log tells of it."""
    told: list[dict[str, Any]] = []

    async def things() -> AsyncGenerator[int]:
        try:
            await asyncio.Event().wait()
            yield 1
        finally:
            raise OSError("the connection is lost")

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with aclosing(beating(things(), 0.01)) as heard:
            assert await anext(heard) is None

    asyncio.run(leave())
    gc.collect()
    assert told == []
