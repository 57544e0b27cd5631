"""How both packages tell every worker to stop working for a turn: by Celery's remote control."""

from __future__ import annotations

from typing import Any

from harness_worker.wire import STOP_COMMAND


def broadcast_stop(app: Any, turn_id: str, *, timeout_s: float | None = None) -> None:  # noqa: ANN401 - Celery has no types
    """Do what Celery's ``control.broadcast`` does, which would retry for ever while the broker is away.

    Raises what Celery's own ``send_task`` would if the broker does not answer.

    Args:
        app: The Celery application; its ``task_publish_retry_policy`` says how often to try.
        turn_id: The turn.
        timeout_s: How long to wait for a free connection, in seconds; ``None``: as long as it takes.
    """
    exchange = app.control.mailbox.exchange
    command = {"method": STOP_COMMAND, "arguments": {"turn_id": turn_id}}
    with app.producer_pool.acquire(block=True, timeout=timeout_s) as producer:
        producer.publish(
            {**command, "destination": None, "pattern": None, "matcher": None},
            exchange=exchange.name,
            declare=[exchange],
            headers={"clock": app.clock.forward(), "expires": 0},
            serializer="json",
            retry=True,
            retry_policy=app.conf.task_publish_retry_policy,
        )
