"""The pure rules of batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_gateway.batches.requests import BatchParams, BatchRequest, check_names
from api_gateway.batches.session_order import placed
from api_gateway.concurrency.background import Background
from api_gateway.database import chunks_of
from api_gateway.problems import MOST_PROBLEMS, Problem

SESSIONS = st.lists(st.sampled_from("abcd"), max_size=12)


@given(SESSIONS, st.sets(st.sampled_from("abcd")), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)))
def test_places_follow_each_other_without_gaps(wanted: list[str], busy: set[str], before: dict[str, int]) -> None:
    """Each turn comes behind those of its session; all but the first wait, and that one if the session is busy."""
    last = {session: before.get(session, 0) + many for session, many in Counter(wanted).items()}
    places = placed(wanted, last, busy)
    assert [place.session_id for place in places] == wanted
    for session in set(wanted):
        mine = [place for place in places if place.session_id == session]
        first = before.get(session, 0) + 1
        assert [place.number for place in mine] == list(range(first, first + len(mine)))
        assert [place.is_behind for place in mine] == [session in busy, *[True] * (len(mine) - 1)]
        assert [place.is_followed for place in mine] == [*[True] * (len(mine) - 1), False]


@given(st.lists(st.integers()), st.integers(1, 5))
def test_chunks_are_all_of_it(items: list[int], size: int) -> None:
    """In order, none longer than asked, none empty."""
    chunks = list(chunks_of(items, size))
    assert [item for chunk in chunks for item in chunk] == items
    assert all(1 <= len(chunk) <= size for chunk in chunks)


def test_nobody_waits_for_a_batch_unless_it_says_so() -> None:
    """Its turns are of the queue that interactive ones do not wait behind."""
    said: list[dict[str, Any]] = [{}, {"priority": None}, {"priority": "batch"}, {"priority": "interactive"}]
    params = [BatchParams.model_validate({"agent": "a", "input": "b", **each}) for each in said]
    assert [each.queue_priority for each in params] == ["batch", "batch", "batch", "interactive"]


def test_names_that_stand_twice_are_told_where_they_do() -> None:
    """Each but the first, as many as are told."""
    turn = {"agent": "a", "input": "b"}
    items = [{"custom_id": name, "params": turn} for name in ["a", "b", "a", "a", *["c"] * 50]]
    with pytest.raises(Problem) as refused:
        check_names(BatchRequest.model_validate({"requests": items}))
    places = [error.loc[2] for error in refused.value.errors]
    assert places == [2, 3, *range(5, 5 + MOST_PROBLEMS - 2)]
    check_names(BatchRequest.model_validate({"requests": items[:2]}))


def test_background_work_ends_with_the_process() -> None:
    """What is not done then is broken off; what is done is forgotten."""
    ended: list[str] = []

    async def work(name: str, until: asyncio.Event) -> None:
        try:
            await until.wait()
        finally:
            ended.append(name)

    async def live() -> None:
        background, now, never = Background(), asyncio.Event(), asyncio.Event()
        background.start(work("done", now))
        background.start(work("broken off", never))
        now.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ended == ["done"]
        await background.close()

    asyncio.run(live())
    assert ended == ["done", "broken off"]
