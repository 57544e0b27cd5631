"""Turns of a batch, and their calls, let others pass: on a real broker, from which workers take messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from kombu import Consumer, Queue
from redis import Redis

from api_gateway.publisher import Publisher
from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.bootstrap.engine import timing_of
from harness_worker.config import load_settings
from harness_worker.testing.services import valkey_service
from harness_worker.wire import Priority, turn_queue
from tests.unit.builders import a_call, a_turn, a_write

# Celery and kombu have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

INTERACTIVE, BATCH = Priority.INTERACTIVE.value, Priority.BATCH.value


@pytest.fixture(scope="module")
def own_redis() -> Iterator[str]:
    """A Redis that only this module uses: workers of others would take its messages."""
    with valkey_service() as url:
        yield url


@pytest.fixture
def broker(own_redis: str) -> str:
    """That Redis, empty."""
    with Redis.from_url(own_redis) as client:
        client.flushall()
    return own_redis


def taken(broker: str, count: int) -> list[Any]:
    """The turns' ids of so many messages, in the order in which a coordinator takes them."""
    return [args[0] for args, _, _ in bodies(broker, count, *map(turn_queue, Priority))]


def bodies(broker: str, count: int, *names: str) -> list[Any]:
    """The bodies of so many messages, in the order in which a worker takes them from these queues."""
    found: list[Any] = []

    def note(_body: Any, message: Any) -> None:  # noqa: ANN401 - kombu's own
        found.append(message.payload)
        message.ack()

    app = make_app(load_settings(), redis_url=broker)
    queues = [Queue(name) for name in names]
    with app.connection_for_read() as connection:
        channel: Any = connection.channel()
        channel.basic_qos(0, 1, False)
        with Consumer(channel, queues, callbacks=[note]):
            for _ in range(count):
                connection.drain_events(timeout=30)
    return found


def test_turns_of_a_batch_begin_behind_all_that_has_begun(broker: str) -> None:
    """Otherwise all of thousands of turns would take their first step before any takes its second."""
    settings = load_settings()
    dispatcher = CeleryDispatcher(make_app(settings, redis_url=broker), timing=timing_of(settings))
    publisher = Publisher(broker, timeout_s=20.0)
    asyncio.run(publisher.advance("posted", BATCH, "default", begins=True))
    asyncio.run(publisher.advance_all([("of a batch", BATCH)], "default", begins=True))
    dispatcher.advance("overdue", BATCH, begins=True)
    dispatcher.advance("goes on", BATCH)
    dispatcher.advance("of a person", INTERACTIVE, begins=True)
    publisher.close()
    order = taken(broker, 5)
    assert {*order[:2]} == {"goes on", "of a person"}
    assert order[2:] == ["posted", "of a batch", "overdue"]


def test_calls_of_a_batch_let_those_of_others_pass(broker: str) -> None:
    """Otherwise somebody who waits for an answer waits for the tools of a whole batch."""
    settings = load_settings()
    dispatcher = CeleryDispatcher(make_app(settings, redis_url=broker), timing=timing_of(settings))
    for turn in a_turn(id="of a batch", priority=BATCH), a_turn(id="of a person", priority=INTERACTIVE):
        dispatcher.chord(turn, [a_call(0), a_call(1)])
        dispatcher.chain(turn, [a_write(0), a_write(1)])
    order = [kwargs["turn_id"] for _, kwargs, _ in bodies(broker, 6, "tools")]
    assert order == ["of a person"] * 3 + ["of a batch"] * 3


def test_a_broker_other_than_redis_is_told_one_priority_for_all(broker: str) -> None:
    """There, unlike in Redis, the greatest number comes first: in RabbitMQ 4, quorum queues would put batches first."""
    settings = load_settings()
    app = make_app(settings, redis_url=broker, broker_url="memory://")
    dispatcher, publisher = CeleryDispatcher(app, timing=timing_of(settings)), Publisher("memory://", timeout_s=20.0)
    asyncio.run(publisher.advance("posted", BATCH, "default", begins=True))
    dispatcher.advance("overdue", BATCH, begins=True)
    dispatcher.chord(a_turn(id="t", priority=BATCH), [a_call(0)])
    dispatcher.chain(a_turn(id="t", priority=BATCH), [a_write(0)])
    publisher.close()
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        messages = [channel.basic_get(queue) for queue in (turn_queue(BATCH), "tools") for _ in range(2)]
    assert [message.properties["priority"] for message in messages] == [0] * 4


def test_a_producers_message_of_any_priority_is_counted_and_taken(broker: str) -> None:
    """A producer without settings uses kombu's priorities: each of their lists must be read."""
    with Celery(broker=broker, set_as_current=False) as producer:
        for priority in range(10):
            producer.send_task("any", [priority], queue=turn_queue(INTERACTIVE), priority=priority)
    publisher = Publisher(broker, timeout_s=20.0)
    depths = asyncio.run(publisher.depths([turn_queue(INTERACTIVE)]))
    publisher.close()
    assert depths == {"turns.interactive": 10}
    assert taken(broker, 10) == list(range(10))


def test_messages_that_wait_to_begin_are_counted(broker: str) -> None:
    """The figure in ``/metrics`` counts all messages of a queue."""
    publisher = Publisher(broker, timeout_s=20.0)
    asyncio.run(publisher.advance_all([("a", BATCH), ("b", BATCH)], "default", begins=True))
    asyncio.run(publisher.advance("c", BATCH, "default"))
    depths = asyncio.run(publisher.depths([turn_queue(BATCH), turn_queue(INTERACTIVE)]))
    publisher.close()
    assert depths == {"turns.batch": 3, "turns.interactive": 0}
