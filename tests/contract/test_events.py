"""The contract of ``ports.EventSink``: what goes in comes out in order, and nothing is ever raised."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.events import HINTS_OFF_S, KEPT_ENTRIES, STREAM_TTL_S, RedisEvents
from harness_worker.core.records import Event
from harness_worker.ports import EventSink
from harness_worker.testing.keys import keys_without_ttl
from harness_worker.wire import EVENT_STREAM
from tests.contract.gate_kit import new_turn_id

Hint = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Watched:
    """A sink, and how to read what it sent for a turn: events, and hints as type and data."""

    sink: EventSink
    of: Callable[[str], list[Event]]
    hints_of: Callable[[str], list[Hint]]


def read_stream(client: RedisClient, turn_id: str) -> list[Event]:
    """The events of a turn as a reader of the stream sees them."""
    told = [each for each in told_of(client, turn_id) if each[0] is not None]
    return [Event(turn_id=turn_id, seq=seq, type=kind, at=at, data=json.loads(data)) for seq, kind, at, data in told]


def read_hints(client: RedisClient, turn_id: str) -> list[Hint]:
    """The hints of a turn as a reader of the stream sees them, without a seq."""
    hints = [each for each in told_of(client, turn_id) if each[0] is None]
    assert all(abs(at - time.time()) < 60 for _, _, at, _ in hints)
    return [(kind, json.loads(data)) for _, kind, _, data in hints]


def told_of(client: RedisClient, turn_id: str) -> list[Any]:
    """All that the stream's entries contain about a turn."""
    entries = [dict(fields) for _, fields in client.command("XRANGE", EVENT_STREAM, "-", "+")]
    return [each for entry in entries if entry["turn"] == turn_id for each in json.loads(entry["told"])]


@pytest.fixture
def watched(client: RedisClient) -> Watched:
    """The sink and the readers of its stream."""
    return Watched(
        RedisEvents(client), lambda turn_id: read_stream(client, turn_id), lambda turn_id: read_hints(client, turn_id)
    )


def events_of(turn_id: str, count: int) -> list[Event]:
    """The first events of a turn."""
    data = {"text": 'é "\n\u0000', "list": [1, 2.5, None, True]}
    return [
        Event(turn_id=turn_id, seq=seq, type="tool.completed", at=1_763_000_000.123456 + seq, data=data)
        for seq in range(1, count + 1)
    ]


def test_events_arrive_whole_and_in_order(watched: Watched) -> None:
    """Every field comes out unchanged, times to the microsecond, and batches one after the other."""
    turn_id = new_turn_id()
    events = events_of(turn_id, 5)
    watched.sink.send(events[:3])
    watched.sink.send([])
    watched.sink.send(events[3:])
    assert watched.of(turn_id) == events


def test_events_of_one_commit_arrive_each_under_its_turn(watched: Watched) -> None:
    """The commit in which a turn asks agents also contains the first events of the turns that it creates."""
    asking, first, second = (new_turn_id() for _ in range(3))
    events = [*events_of(asking, 2), *events_of(first, 1), *events_of(second, 1)]
    watched.sink.send(events)
    assert [watched.of(turn_id) for turn_id in (asking, first, second)] == [events[:2], events[2:3], events[3:]]


def test_hints_arrive_beside_events_and_count_for_none(watched: Watched) -> None:
    """A hint has no seq and uses none up: the events around it are as they would be without it."""
    turn_id = new_turn_id()
    events = events_of(turn_id, 2)
    hints: list[Hint] = [("model.delta", {"step": 0, "text": 'é "\n'}), ("model.delta", {"step": 0, "text": "b"})]
    watched.sink.send(events[:1])
    for _, data in hints:
        watched.sink.hint(turn_id, "model.delta", data)
    watched.sink.send(events[1:])
    assert watched.hints_of(turn_id) == hints
    assert watched.of(turn_id) == events


def test_hints_are_lost_without_raising_and_then_spared(caplog: pytest.LogCaptureFixture) -> None:
    """An unreachable Redis delays a model's text once, not at every piece; events are still tried."""
    now_s = [0.0]
    sink = RedisEvents(RedisClient(f"redis://127.0.0.1:{free_port()}/0"), clock=lambda: now_s[0])
    for _ in range(3):
        sink.hint("some-turn", "model.delta", {"text": "x"})
    assert caplog.text.count("live text of turn some-turn was lost") == 1
    now_s[0] += HINTS_OFF_S
    sink.hint("some-turn", "model.delta", {"text": "x"})
    assert caplog.text.count("live text of turn some-turn was lost") == 2


def test_stream_is_bounded_and_expires(client: RedisClient) -> None:
    """Redis does not fill up with events that nobody reads, and every key expires."""
    sink = RedisEvents(client)
    event = events_of(new_turn_id(), 1)
    for _ in range(KEPT_ENTRIES + KEPT_ENTRIES // 5):
        sink.send(event)
    assert KEPT_ENTRIES <= client.command("XLEN", EVENT_STREAM) < KEPT_ENTRIES * 1.05
    assert STREAM_TTL_S - 60 < client.command("TTL", EVENT_STREAM) <= STREAM_TTL_S
    assert keys_without_ttl(client, pattern="harness:*") == []


def test_events_are_lost_without_raising_when_redis_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """A committed turn does not fail because it cannot be watched; the loss is logged."""
    sink = RedisEvents(RedisClient(f"redis://127.0.0.1:{free_port()}/0"))
    with caplog.at_level(logging.WARNING):
        sink.send(events_of("some-turn", 2))
    assert "2 live events of turn some-turn were lost: redis did not answer" in caplog.text


def test_events_are_lost_without_raising_when_the_stream_is_broken(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that Redis itself reports is logged as a loss, too."""
    client = RedisClient(valkey_url.rsplit("/", 1)[0] + "/9")
    sink = RedisEvents(client)
    client.command("SET", EVENT_STREAM, "not a stream", "EX", 60)
    sink.send(events_of("some-turn", 3))
    assert "3 live events of turn some-turn were lost: redis refused: WRONGTYPE" in caplog.text
    client.command("DEL", EVENT_STREAM)
    sink.send(events_of("some-turn", 1))
    assert len(caplog.records) == 1
    client.disconnect()


def test_events_that_json_cannot_hold_are_lost_without_raising(
    client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Invalid data in an event, caused by a bug elsewhere, does not fail the turn."""
    sink = RedisEvents(client)
    sink.send([Event(turn_id="some-turn", seq=1, type="tool.completed", at=0.0, data={"bad": object()})])
    assert "1 live events of turn some-turn were lost" in caplog.text
