"""What a worker hears of the commands that are broadcast."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from celery import Celery
from redis import Redis

from harness_worker.testing.waiting import wait_until
from harness_worker.wire import BROKER_TRANSPORT_OPTIONS, STOP_COMMAND


@contextmanager
def mailbox(url: str, name: str) -> Generator[list[str]]:
    """The turns that workers are told to stop, as they come, received with Celery's own mailbox."""
    app: Any = cast("Any", Celery)("worker", broker=url, set_as_current=False)
    app.conf.broker_transport_options = dict(BROKER_TRANSPORT_OPTIONS)
    heard: list[str] = []
    over = threading.Event()

    def stop(_state: object, turn_id: str) -> None:
        heard.append(turn_id)

    with app.connection_for_read() as connection, cast("Any", Redis).from_url(url) as looking:
        others = len(_listeners(looking))
        node = app.control.mailbox.Node(name, handlers={STOP_COMMAND: stop}, state=None)
        node.channel = connection.channel()
        consumer = node.listen(callback=node.handle_message)
        thread = threading.Thread(target=_drain, args=(connection, over), daemon=True)
        thread.start()
        try:
            wait_until(lambda: len(_listeners(looking)) > others, "the mailbox to be subscribed to")
            yield heard
        finally:
            over.set()
            thread.join()
            consumer.cancel()
    app.close()


def _listeners(looking: Any) -> list[Any]:  # noqa: ANN401 - redis-py's client
    return looking.client_list(_type="pubsub")


def _drain(connection: Any, over: threading.Event) -> None:  # noqa: ANN401 - kombu has no types
    while not over.is_set():
        try:
            connection.drain_events(timeout=0.1)
        except TimeoutError:
            continue
