"""Messages that a worker drops while the Redis of results is away. If that ended it, its calls would end with it."""

from __future__ import annotations

import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery.worker import state
from kombu import Connection
from kombu.asynchronous.hub import Hub

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.consumer import CarefulConsumer
from harness_worker.adapters.celery.tasks import SubmitTask
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.config import Settings
from harness_worker.wire import SUBMIT_TASK

# Celery and kombu have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


@pytest.mark.parametrize(
    ("task", "options"),
    [("shop.told", {}), (SUBMIT_TASK, {"expires": LONG_AGO})],
    ids=["unknown", "expired"],
)
def test_message_is_dropped_though_its_producer_cannot_be_told(
    valkey_url: str, task: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """With RabbitMQ as the broker, messages come though Redis is away, and one that is left comes again at once."""
    app = make_app(Settings(), redis_url=f"redis://127.0.0.1:{free_port()}/0", broker_url=valkey_url)
    app.register_task(SubmitTask(cast("Any", None)))
    queue = task_id = uuid.uuid4().hex
    app.send_task(task, task_id=task_id, queue=queue, **options)
    with Connection(valkey_url) as broker, closing(broker.SimpleQueue(queue)) as messages:
        message = messages.get(timeout=30)
        _receiving(app)(message)
        assert message.acknowledged
    assert f"the producer of task {task_id} is not told that it was dropped: ConnectionError" in caplog.text


def _receiving(app: Any) -> Any:  # noqa: ANN401 - Celery's own
    """The handler of messages of a worker without an event loop, so that it answers at once."""
    pool = SimpleNamespace(num_processes=1, is_green=False, apply_async=None)
    worker = SimpleNamespace(use_eventloop=False, semaphore=None, state=state)
    consumer: Any = CarefulConsumer(print, app=app, pool=pool, timer=Hub().timer, controller=worker)
    consumer.update_strategies()
    return consumer.create_task_handler()
