"""How long a request waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from api_gateway.concurrency.coalescing import Gathered
from api_gateway.streams.live import Feed, LiveEvent, LiveEvents, Wake
from api_gateway.turns.heads import Head
from api_gateway.use_cases.waiting import Waiter, turn_now, wait_for_rest, wait_of


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (["wait=20"], 20),
        (["Wait = 5"], 5),
        (['wait="7"'], 7),
        (["respond-async, wait=10"], 10),
        (["respond-async", "wait=10"], 10),
        (["wait=0.5"], 0.5),
        (["wait=600"], 60),
        (["wait=3; foo=bar"], 3),
        ([], 0),
        (["wait=-1"], 0),
        (["wait=x"], 0),
        (["wait=1e3"], 0),
        (["awaits=5"], 0),
        (["wait=" + "9" * 5_000], 60),
    ],
)
def test_wait_of_prefer_headers(prefer: list[str], seconds: float) -> None:
    """Capped at 60 seconds; a senseless preference is none."""
    assert wait_of(prefer) == seconds


def test_wait_counts_from_when_the_request_came() -> None:
    """A client that has waited for its turn to be made has less patience left: it must not ask again."""

    async def has_gone() -> bool:
        return False

    async def unasked(_: frozenset[str]) -> Mapping[str, Head]:
        raise AssertionError("nobody may ask")

    async def wait() -> None:
        waiter = Waiter(wait_s=5.0, has_gone=has_gone, since=monotonic() - 6.0)
        await wait_for_rest("t", waiter, Feed(), LiveEvents(None), Gathered(unasked))

    asyncio.run(wait())


@pytest.mark.parametrize(("until_end", "looks"), [(False, 0), (True, 3)])
@pytest.mark.parametrize("waiting", [("requires_action", False), ("running", True)])
def test_who_waits_for_the_end_does_not_stop_where_a_person_is_asked(
    waiting: tuple[str, bool], *, until_end: bool, looks: int
) -> None:
    """A turn that was asked to stop ends soon, although it still looks as if it waited for that person."""
    told = [waiting, waiting, ("cancelled", False)]
    asked: list[str] = []

    async def read(turn_ids: frozenset[str]) -> Mapping[str, Head]:
        status, asks_below = told[len(asked)]
        asked.extend(turn_ids)
        return {"t": Head(status=status, last_seq=1, asks_below=asks_below)}

    async def here() -> bool:
        return False

    async def wait() -> None:
        feed = Feed()
        feed.offer(LiveEvent(turn_id="t", seq=2, type="turn.requires_action", at=0.0, data="{}"))
        for _ in told:
            feed.offer(Wake.LOST)
        waiter = Waiter(wait_s=60.0, has_gone=here, until_end=until_end)
        await wait_for_rest("t", waiter, feed, LiveEvents(None), Gathered(read))

    asyncio.run(wait())
    assert len(asked) == looks


def test_wait_outlasts_looks_that_fail() -> None:
    """A database that is away for a moment must not answer everybody who waits."""
    away = OperationalError("SELECT", {}, Exception("the server restarts"))
    answers = [away, away, {"t": Head(status="completed", last_seq=1, asks_below=False)}]

    async def read(_: frozenset[str]) -> Mapping[str, Head]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def here() -> bool:
        return False

    async def wait() -> None:
        feed = Feed()
        for _ in answers:
            feed.offer(Wake.LOST)
        await wait_for_rest("t", Waiter(wait_s=60.0, has_gone=here), feed, LiveEvents(None), Gathered(read))

    asyncio.run(wait())
    assert answers == []


def test_last_look_at_a_turn_ends_when_the_process_stops() -> None:
    """It would otherwise outlast the process, and the client would hear nothing of its turn."""
    live = LiveEvents(None)

    async def here() -> bool:
        return False

    async def never(_turn_id: str) -> None:
        live.stop()
        await asyncio.Event().wait()

    turn: Any = SimpleNamespace(id="t")
    services: Any = SimpleNamespace(turns=SimpleNamespace(one=never), shared=SimpleNamespace(live=live))
    looked = turn_now(turn, Waiter(wait_s=600, has_gone=here), services)
    assert asyncio.run(asyncio.wait_for(looked, 30)) is turn
