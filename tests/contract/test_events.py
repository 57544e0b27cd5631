"""The contract of ``ports.EventSink``: what goes in comes out in order, and nothing is ever raised."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.memory.events import MemoryEvents
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.events import KEPT_EVENTS, STREAM_TTL_S, RedisEvents
from harness_worker.ports import Event, EventSink
from harness_worker.testing.keys import keys_without_ttl
from harness_worker.wire import EVENT_STREAM
from tests.contract.gate_kit import new_turn_id


@dataclass(frozen=True, slots=True)
class Watched:
    """A sink, and how to read what it carried for a turn."""

    sink: EventSink
    of: Callable[[str], list[Event]]


def read_stream(client: RedisClient, turn_id: str) -> list[Event]:
    """The events of a turn, as a reader of the stream sees them."""
    entries = [dict(fields) for _, fields in client.command("XRANGE", EVENT_STREAM, "-", "+")]
    return [as_event(entry) for entry in entries if entry["turn"] == turn_id]


def as_event(entry: dict[str, str]) -> Event:
    """An entry of the stream as the event it carries."""
    data = json.loads(entry["data"])
    return Event(turn_id=entry["turn"], seq=int(entry["seq"]), type=entry["type"], at=float(entry["at"]), data=data)


@pytest.fixture
def client(valkey_url: str) -> Iterator[RedisClient]:
    """The Valkey of the session."""
    client = RedisClient(valkey_url)
    yield client
    client.disconnect()


@pytest.fixture(params=["memory", "valkey"])
def watched(request: pytest.FixtureRequest) -> Watched:
    """Both sinks."""
    if request.param == "memory":
        memory = MemoryEvents()
        return Watched(memory, lambda turn_id: [event for event in memory.sent if event.turn_id == turn_id])
    client: RedisClient = request.getfixturevalue("client")
    return Watched(RedisEvents(client), lambda turn_id: read_stream(client, turn_id))


def events_of(turn_id: str, count: int) -> list[Event]:
    """The first events of a turn."""
    data = {"text": 'é "\n\u0000', "list": [1, 2.5, None, True]}
    return [
        Event(turn_id=turn_id, seq=seq, type="tool.completed", at=1_763_000_000.123456 + seq, data=data)
        for seq in range(1, count + 1)
    ]


def test_events_arrive_whole_and_in_order(watched: Watched) -> None:
    """Every field comes out as it went in, times to the microsecond, batches one after the other."""
    turn_id = new_turn_id()
    events = events_of(turn_id, 5)
    watched.sink.send(events[:3])
    watched.sink.send([])
    watched.sink.send(events[3:])
    assert watched.of(turn_id) == events


def test_stream_is_bounded_and_expires(client: RedisClient) -> None:
    """Redis does not fill up with events nobody reads, and no key stays for ever."""
    sink = RedisEvents(client)
    for _ in range(12):
        sink.send(events_of(new_turn_id(), KEPT_EVENTS // 10))
    assert KEPT_EVENTS <= client.command("XLEN", EVENT_STREAM) < KEPT_EVENTS * 1.05
    assert STREAM_TTL_S - 60 < client.command("TTL", EVENT_STREAM) <= STREAM_TTL_S
    assert keys_without_ttl(client, pattern="harness:*") == []


def test_events_are_lost_without_raising_when_redis_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """A committed turn does not fail because nobody can watch: the loss is counted and logged."""
    sink = RedisEvents(RedisClient(f"redis://127.0.0.1:{free_port()}/0"))
    with caplog.at_level(logging.WARNING):
        sink.send(events_of("some-turn", 2))
    assert sink.lost == 2
    assert "2 live events of turn some-turn were lost: redis did not answer" in caplog.text


def test_events_are_lost_without_raising_when_the_stream_is_broken(valkey_url: str) -> None:
    """An error that Redis itself reports is a loss too."""
    client = RedisClient(valkey_url.rsplit("/", 1)[0] + "/9")
    sink = RedisEvents(client)
    client.command("SET", EVENT_STREAM, "not a stream", "EX", 60)
    sink.send(events_of("some-turn", 3))
    assert sink.lost == 3
    client.command("DEL", EVENT_STREAM)
    sink.send(events_of("some-turn", 1))
    assert sink.lost == 3
    client.disconnect()


def test_events_that_json_cannot_hold_are_lost_without_raising(client: RedisClient) -> None:
    """A bug elsewhere in the data of an event does not fail the turn."""
    sink = RedisEvents(client)
    sink.send([Event(turn_id="some-turn", seq=1, type="tool.completed", at=0.0, data={"bad": object()})])
    assert sink.lost == 1
