"""What is asked again before it is answered is read once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from functools import partial

import pytest

from api_gateway.concurrency.coalescing import MOMENT_S, Gathered, LateAnswers, SingleFlight


class Source:
    """Knows all but ``unknown``; each reading waits until it is let go."""

    def __init__(self) -> None:
        self.asked: list[frozenset[str]] = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.fails = False

    async def read(self, wanted: frozenset[str]) -> Mapping[str, str]:
        """What is known of these."""
        self.asked.append(wanted)
        self.is_asked.set()
        await self.may_answer.wait()
        if self.fails:
            raise OSError("away")
        return {each: each.upper() for each in wanted if each != "unknown"}


def test_who_asks_within_a_moment_is_answered_by_one_reading() -> None:
    """Each with its own; the unknown are told so, and who leaves takes nobody's answer away."""

    async def asked() -> None:
        source = Source()
        source.may_answer.set()
        gathered = Gathered(source.read)
        leaves = asyncio.create_task(gathered.of("a"))
        others = [asyncio.create_task(gathered.of(each)) for each in ("a", "b", "unknown")]
        await asyncio.sleep(0)
        leaves.cancel()
        assert await asyncio.gather(*others) == ["A", "B", None]
        assert source.asked == [{"a", "b", "unknown"}]

    asyncio.run(asked())


def test_who_asks_during_a_reading_is_answered_by_the_next() -> None:
    """What is read for somebody is what there was after they asked; two readings never overlap."""

    async def asked() -> None:
        source = Source()
        gathered = Gathered(source.read)
        first = asyncio.create_task(gathered.of("a"))
        await source.is_asked.wait()
        later = [asyncio.create_task(gathered.of(each)) for each in ("a", "b")]
        await asyncio.wait(later, timeout=4 * MOMENT_S)
        assert source.asked == [{"a"}]
        source.may_answer.set()
        assert await asyncio.gather(first, *later) == ["A", "A", "B"]
        assert source.asked == [{"a"}, {"a", "b"}]

    asyncio.run(asked())


def test_reading_that_fails_fails_for_all_and_the_next_is_another() -> None:
    """Nobody is told that something is unknown because nobody could look."""

    async def asked() -> None:
        source = Source()
        source.may_answer.set()
        source.fails = True
        gathered = Gathered(source.read)
        answers = await asyncio.gather(*(gathered.of(each) for each in "ab"), return_exceptions=True)
        assert [str(each) for each in answers] == ["away", "away"]
        source.fails = False
        assert await gathered.of("a") == "A"

    asyncio.run(asked())


def test_reading_that_ends_before_it_has_begun_is_made_anew() -> None:
    """Whatever it was, such as a lack of memory, is over for who asks later."""

    async def asked() -> None:
        source = Source()
        source.may_answer.set()
        gathered = Gathered(source.read)
        first = asyncio.create_task(gathered.of("a"))
        await asyncio.sleep(0)
        for reading in asyncio.all_tasks() - {asyncio.current_task(), first}:
            reading.cancel()
        await asyncio.wait({first})
        assert await gathered.of("a") == "A"

    asyncio.run(asked())


@pytest.mark.parametrize("of_many", [False, True], ids=["single flight", "gathered"])
def test_reading_that_fails_when_all_have_left_is_no_bug(caplog: pytest.LogCaptureFixture, of_many: bool) -> None:
    """Nobody is left to be told; the log of the loop stays free of it."""

    async def asked() -> None:
        source = Source()
        source.fails = True
        ask = partial(Gathered(source.read).of, "a") if of_many else SingleFlight(partial(source.read, frozenset("a")))
        leaves = asyncio.create_task(ask())
        await source.is_asked.wait()
        leaves.cancel()
        await asyncio.wait({leaves})
        source.may_answer.set()
        await asyncio.sleep(MOMENT_S)

    asyncio.run(asked())
    gc.collect()
    assert caplog.text == ""


def test_late_answer_is_heard_by_the_next_who_asks() -> None:
    """One question is open at a time: a database that stands still is not asked again and again."""

    async def asked() -> None:
        answers: list[asyncio.Future[int]] = []

        async def ask() -> int:
            answers.append(asyncio.get_running_loop().create_future())
            return await answers[-1]

        late = LateAnswers(ask)
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
                await late.within(0.01)
        assert len(answers) == 1
        answers[0].set_result(7)
        assert await late.within(5.0) == 7
        with pytest.raises(TimeoutError):
            await late.within(0.01)
        answers[1].set_exception(OSError("nobody there"))
        with pytest.raises(OSError, match="nobody there"):
            await late.within(5.0)

    asyncio.run(asked())


def test_who_leaves_a_late_answer_cancels_the_question() -> None:
    """Nobody would hear it."""

    async def asked() -> None:
        cancelled = asyncio.Event()

        async def ask() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        late = LateAnswers(ask)
        late.leave()  # nothing is open
        with pytest.raises(TimeoutError):
            await late.within(0.01)
        late.leave()
        await asyncio.wait_for(cancelled.wait(), 30.0)

    asyncio.run(asked())
