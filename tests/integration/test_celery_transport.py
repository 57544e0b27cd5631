"""Our kombu channels leave in Redis what kombu's own would leave, because other clients of the broker read it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import redis as kombus
from redis import Redis
from redis.exceptions import OutOfMemoryError
from redis.lock import Lock

from harness_worker.adapters.celery import transport as ours
from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.broker import broker_errors_are_transient
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.config import Settings
from harness_worker.errors import TransientError
from harness_worker.testing.services import valkey_service

# kombu has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

TRANSPORTS = {"kombu": kombus.Transport, "ours": ours.Transport}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """A Redis that only this module uses, because all clients of a Redis share its unacknowledged messages."""
    with valkey_service() as url:
        yield url


@pytest.fixture
def looking(broker: str) -> Iterator[Any]:
    """A client of redis-py, on an empty broker."""
    with Redis.from_url(broker, decode_responses=True) as looking:
        looking.flushall()
        yield looking


def _sent(connection: Connection) -> str:
    queue = uuid.uuid4().hex
    connection.SimpleQueue(queue).put({"n": 1})
    return queue


def _taken(connection: Connection, queue: str) -> Any:  # noqa: ANN401 - a kombu message
    taken: list[Any] = []

    def take(_: object, message: Any) -> None:  # noqa: ANN401 - a kombu message
        taken.append(message)

    with connection.Consumer(connection.SimpleQueue(queue).queue, callbacks=[take]):
        connection.drain_events(timeout=30)
    return taken[0]


@pytest.mark.parametrize("transport", TRANSPORTS.values(), ids=TRANSPORTS)
def test_taken_message_is_noted_as_kombu_notes_it_and_struck_off(transport: Any, broker: str, looking: Any) -> None:  # noqa: ANN401
    """A taken message is recorded with its origin and its time, and an acknowledged one leaves nothing."""
    with Connection(broker, transport=transport) as connection:
        queue = _sent(connection)
        message = _taken(connection, queue)
        ((tag, noted),) = looking.hgetall("unacked").items()
        ((listed, score),) = looking.zrange("unacked_index", 0, -1, withscores=True)
        seconds, _ = looking.time()
        assert tag == listed == message.delivery_tag
        assert abs(score - seconds) < 60
        raw, exchange, routing_key = json.loads(noted)
        assert (exchange, routing_key, raw["properties"]["delivery_tag"]) == (queue, queue, tag)
        message.ack()
        assert not looking.exists("unacked", "unacked_index")


def test_look_for_lost_messages_that_a_silent_broker_leaves_locked_is_free_again_soon(
    broker: str,
    looking: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the broker hung while the lock was requested, the lock of the search for lost messages expires soon."""
    monkeypatch.setattr(Lock, "release", print)
    options = make_app(Settings(), redis_url=broker).conf.broker_transport_options
    with Connection(broker, transport=ours.Transport, transport_options=options) as connection:
        channel: Any = connection.default_channel
        channel.qos.restore_visible()
    assert 0 < looking.pttl("unacked_mutex") <= 10_000


@pytest.mark.parametrize("restorer", TRANSPORTS.values(), ids=TRANSPORTS)
@pytest.mark.parametrize("taker", TRANSPORTS.values(), ids=TRANSPORTS)
def test_message_that_one_took_is_restored_by_the_other(taker: Any, restorer: Any, broker: str, looking: Any) -> None:  # noqa: ANN401
    """What a dead worker had taken is restored, whichever of the two transports each side uses."""
    with Connection(broker, transport=taker) as took, Connection(broker, transport=restorer) as restores:
        queue = _sent(took)
        tag = _taken(took, queue).delivery_tag
        looking.zadd("unacked_index", {tag: 1})  # long ago
        channel: Any = restores.default_channel
        channel.qos.restore_visible()
        assert looking.llen(queue) == 1
        assert not looking.exists("unacked", "unacked_index")
        assert _taken(restores, queue).headers["redelivered"]


def test_message_is_acknowledged_on_a_connection_that_was_cut(broker: str, looking: Any) -> None:  # noqa: ANN401
    """If the broker closed an idle connection, acknowledging on it still works."""
    with Connection(broker, transport=ours.Transport) as connection:
        message = _taken(connection, _sent(connection))
        looking.client_kill_filter(_type="normal", skipme=True)
        message.ack()
        assert not looking.exists("unacked", "unacked_index")


def test_message_that_goes_back_to_its_queue_keeps_no_other_waiting(broker: str) -> None:
    """It is put behind those that wait: what it needs may be away for long, and it would be taken again at once."""
    with Connection(broker, transport=ours.Transport) as connection:
        queue = _sent(connection)
        connection.SimpleQueue(queue).put({"n": 2})
        channel: Any = connection.default_channel
        channel.basic_get(queue).requeue()
        assert [channel.basic_get(queue).payload["n"] for _ in range(2)] == [2, 1]


@pytest.mark.parametrize("answer", ["ack", "requeue"])
def test_message_of_a_broker_that_is_gone_holds_no_place(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is it an error that it cannot be answered: it comes again once the broker is back."""
    with ExitStack() as ending:
        with valkey_service() as url:
            connection = ending.enter_context(Connection(url, transport=ours.Transport))
            channel: Any = connection.default_channel
            channel.basic_qos(0, 1, False)
            message = _taken(connection, _sent(connection))
        getattr(message, answer)()
        assert channel.qos.can_consume()
    assert "a message comes again later, as it could not be answered: ConnectionError" in caplog.text


@pytest.mark.parametrize("answer", ["ack", "requeue"])
def test_broker_that_takes_no_writes_for_a_while_holds_no_place(
    broker: str,
    looking: Any,  # noqa: ANN401
    answer: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A message that cannot be answered is no longer under way, and lost ones are looked for later. It is no error."""
    with Connection(broker, transport=ours.Transport) as connection:
        channel: Any = connection.default_channel
        channel.basic_qos(0, 1, False)
        message = channel.basic_get(_sent(connection))
        assert not channel.qos.can_consume()
        looking.replicaof("127.0.0.1", free_port())
        try:
            getattr(message, answer)()
            channel.qos.restore_visible()
        finally:
            looking.replicaof("NO", "ONE")
        assert channel.qos.can_consume()
    assert "a message comes again later, as it could not be answered: ReadOnlyError" in caplog.text
    assert "messages of lost workers not looked for: redis refused" in caplog.text


def test_channel_whose_connection_was_given_up_is_a_broker_that_does_not_answer(broker: str) -> None:
    """Producers may hold one after Redis refused writes; kombu's own error would end a round of the reconciler."""
    with Connection(broker, transport=ours.Transport) as connection:
        channel: Any = connection.default_channel
        channel.close()
        with pytest.raises(TransientError, match="does not answer"), broker_errors_are_transient():
            channel.queue_purge("some")


def test_full_broker_is_told(broker: str, looking: Any) -> None:  # noqa: ANN401
    """If the broker refuses to record a message, the error is raised as kombu raises it."""
    with Connection(broker, transport=ours.Transport) as connection:
        queue = _sent(connection)
        looking.config_set("maxmemory", "1")
        try:
            with pytest.raises(OutOfMemoryError):
                _taken(connection, queue)
        finally:
            looking.config_set("maxmemory", "0")
