"""Work of a gateway that goes on, whatever ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest

from api_gateway.concurrency import lasting as module
from api_gateway.concurrency.lasting import lasting

AGAIN_S = 0.05


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work begins again at once."""
    monkeypatch.setattr(module, "AGAIN_S", 0.0)


def test_work_that_an_error_ends_begins_again_until_its_context_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody else would do it in this process, which goes on serving."""
    errors: list[Exception] = [RuntimeError("a bug"), MemoryError()]
    seen: list[str] = []

    async def story() -> None:
        going_on = asyncio.Event()

        async def work() -> None:
            if errors:
                raise errors.pop()
            going_on.set()
            try:
                await asyncio.Event().wait()
            finally:
                seen.append("cancelled")

        async with lasting(work, name="webhooks"):
            await asyncio.wait_for(going_on.wait(), 20)

    asyncio.run(story())
    assert seen == ["cancelled"]
    assert [record.message for record in caplog.records] == ["webhooks begin again after an error"] * 2


@pytest.mark.parametrize("error", [asyncio.CancelledError(), BaseException("of a library")], ids=["cancelled", "other"])
def test_work_that_is_left_by_no_exception_begins_again(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Awaiting what somebody else has cancelled raises the same as being cancelled."""
    errors = [error]

    async def story() -> None:
        going_on = asyncio.Event()

        async def work() -> None:
            if errors:
                raise errors.pop()
            going_on.set()

        async with lasting(work, name="webhooks"):
            await asyncio.wait_for(going_on.wait(), 20)

    asyncio.run(story())
    assert [record.message for record in caplog.records] == ["webhooks begin again after an error"]


def test_work_that_its_loop_cancels_does_not_begin_again() -> None:
    """A process that is interrupted cancels all tasks, and waits for them."""
    begun: list[str] = []

    async def story() -> None:
        failed = asyncio.Event()

        async def work() -> None:
            begun.append("begun")
            failed.set()
            await asyncio.Event().wait()

        kept.append(lasting(work, name="webhooks"))
        await kept[0].__aenter__()
        await failed.wait()

    kept: list[AbstractAsyncContextManager[None]] = []
    asyncio.run(story())
    assert begun == ["begun"]


def test_work_that_misses_a_cancel_ends_with_its_context() -> None:
    """Up to Python 3.11 ``asyncio.wait_for``, in which redis-py sends, misses one that comes once all is sent."""

    async def story() -> None:
        going_on = asyncio.Event()

        async def work() -> None:
            going_on.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

        async with asyncio.timeout(20), lasting(work, name="live-events"):
            await going_on.wait()

    asyncio.run(story())


def test_work_that_cannot_begin_again_yet_begins_later() -> None:
    """What made it end, such as a lack of memory, may last a while."""
    errors: list[Exception] = [MemoryError(), MemoryError(), RuntimeError("a bug")]

    async def story() -> None:
        going_on = asyncio.Event()

        async def fail() -> None:
            raise errors.pop()

        async def go_on() -> None:
            going_on.set()

        def work() -> Coroutine[Any, Any, None]:
            if len(errors) == 3:
                return fail()
            if errors:
                raise errors.pop()
            return go_on()

        async with lasting(work, name="webhooks"):
            await asyncio.wait_for(going_on.wait(), 20)

    asyncio.run(story())


def test_work_that_ends_by_itself_is_not_cancelled() -> None:
    """It has some time for that, and does not begin again."""
    seen: list[str] = []

    async def story() -> None:
        over = asyncio.Event()

        async def work() -> None:
            await over.wait()
            seen.append("ended")

        async with lasting(work, name="webhooks", drain_s=20):
            over.set()

    asyncio.run(story())
    assert seen == ["ended"]


def test_work_that_failed_does_not_begin_once_its_context_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it uses may be closed by then."""
    monkeypatch.setattr(module, "AGAIN_S", AGAIN_S)
    begun: list[str] = []

    async def story() -> None:
        failed = asyncio.Event()

        async def work() -> None:
            begun.append("begun")
            failed.set()
            raise RuntimeError("a bug")

        async with lasting(work, name="webhooks", drain_s=20):
            await failed.wait()

    asyncio.run(story())
    assert begun == ["begun"]
