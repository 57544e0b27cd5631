"""What streams and waiting requests are told of live events, and what when there are none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest

from api_gateway.streams.live import QUEUE_SIZE, Feed, LiveEvent, LiveEvents, Wake


async def _drained(feed: Feed) -> list[LiveEvent | Wake]:
    return [await feed.next(0.001) for _ in range(3)]


def test_feed_that_overflows_sends_its_reader_to_sql() -> None:
    """A slow reader loses the events and is told so once; memory stays bounded."""

    async def overflow() -> list[LiveEvent | Wake]:
        feed = Feed()
        for seq in range(QUEUE_SIZE + 2):
            feed.offer(LiveEvent(turn_id="t", seq=seq, type="x", at=0.0, data="{}"))
        return await _drained(feed)

    lost, kept, nothing = asyncio.run(overflow())
    assert (lost, nothing) == (Wake.LOST, Wake.IDLE)
    assert isinstance(kept, LiveEvent)
    assert kept.seq == QUEUE_SIZE + 1


def test_reader_of_live_events_goes_on_though_its_failure_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is too short even for the line in the log; who waits relies on SQL until then."""
    failures: list[Exception] = [ConnectionError("no Redis")]

    def short(*_told: object) -> None:
        raise MemoryError

    async def read() -> Wake | LiveEvent:
        again = asyncio.Event()

        async def entries(_redis_url: str, _on_begin: object) -> AsyncGenerator[list[Any]]:
            if failures:
                raise failures.pop()
            again.set()
            await asyncio.Event().wait()
            yield []

        monkeypatch.setattr("api_gateway.streams.live._entries", entries)
        live = LiveEvents("redis://nowhere")
        with live.watch("t") as feed:
            reading = asyncio.create_task(live.run())
            hearing = asyncio.create_task(again.wait())
            await asyncio.wait([reading, hearing], return_when=asyncio.FIRST_COMPLETED, timeout=20)
            assert again.is_set()
            reading.cancel()
            return await feed.next(1.0)

    monkeypatch.setattr("api_gateway.streams.live._log.warning", short)
    assert asyncio.run(read()) is Wake.LOST


@pytest.mark.parametrize(
    "told",
    [
        *("7", "[7]", '[["1", 2]]', "{", '[[1, "x", "then", "{}"]]'),
        *('[["1", "x", 1.0, "{}"]]', '[[1, 2, 1.0, "{}"]]', '[[1, "x", 1.0, {}]]'),
    ],
)
def test_live_event_that_is_none_sends_its_reader_to_sql(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer worker may write another format; what it says of other turns is read all the same."""
    fine = json.dumps([[7, "turn.started", 1.0, "{}"]])
    heard = _heard(monkeypatch, [{"turn": "t", "told": told}, {"turn": "t"}, {"turn": "t", "told": fine}])
    assert heard.woken == [Wake.LOST, Wake.LOST, LiveEvent(turn_id="t", seq=7, type="turn.started", at=1.0, data="{}")]


def test_only_turns_that_come_to_rest_may_have_a_webhook_to_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is not asked about each of the many events of every turn."""
    kinds = {"one": "step.started", "two": "turn.completed", "three": "turn.requires_action", "four": "model.delta"}
    told = [{"turn": turn, "told": json.dumps([[1, kind, 1.0, "{}"]])} for turn, kind in kinds.items()]
    assert _heard(monkeypatch, told).rested == ["two", "three"]


def test_each_outage_of_live_events_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried to connect meanwhile."""
    monkeypatch.setattr("api_gateway.streams.live.BACKOFF_S", (0.0,))
    away = ConnectionError("no Redis")
    _heard(monkeypatch, [], away, away, [], away, [])
    assert caplog.text.count("live events are not available") == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of live events: why the waiter of ``t`` was woken, and which turns came to rest."""

    woken: list[Wake | LiveEvent]
    rested: list[str]


def _heard(monkeypatch: pytest.MonkeyPatch, *connections: list[dict[str, str]] | Exception) -> Heard:
    """Read from so many connections, one after the other, each of which gives one batch or fails."""
    left, rested = list(connections), list[str]()

    async def read() -> list[Wake | LiveEvent]:
        over = asyncio.Event()

        async def entries(_redis_url: str, _on_begin: object) -> AsyncGenerator[list[tuple[str, dict[str, str]]]]:
            if not left:
                over.set()
                await asyncio.Event().wait()
            got = left.pop(0)
            if isinstance(got, Exception):
                raise got
            yield [("1-0", fields) for fields in got]

        monkeypatch.setattr("api_gateway.streams.live._entries", entries)
        live = LiveEvents("redis://nowhere", rested.append)
        with live.watch("t") as feed:
            reading = asyncio.create_task(live.run())
            await asyncio.wait_for(over.wait(), 20)
            reading.cancel()
            feed.offer(Wake.STOPPING)
            woken = [await feed.next(20.0)]
            while woken[-1] is not Wake.STOPPING:
                woken.append(await feed.next(20.0))
            return woken[:-1]

    return Heard(woken=asyncio.run(read()), rested=rested)
