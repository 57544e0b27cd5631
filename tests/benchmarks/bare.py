"""The yardstick: W1 as a bare Celery canvas, with no durability at all.

The same nine tasks a turn that the harness sends: three of the coordinator, four reads in a chord, two writes in a
chain. The last tells the client by a push to the right end of a Redis list; messages are pushed to the left.
"""

from __future__ import annotations

import os
from threading import Event
from typing import Any

from celery import Celery, chain, chord
from redis import Redis

from tests.apps.w1 import BODY_S

REDIS_URL = os.environ.get("W1_BARE_REDIS_URL", "redis://127.0.0.1:6379/0")
STEPS = "steps"
TOOLS = "tools"

app = Celery("bare", broker=REDIS_URL, backend=REDIS_URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_deduplicate_successful_tasks=False,
    task_serializer="json",
    accept_content=["json"],
    broker_transport_options={"priority_steps": [0]},
    worker_send_task_events=True,
    task_track_started=True,
)
done = Redis.from_url(REDIS_URL)  # pyright: ignore[reportUnknownMemberType] - its **kwargs are untyped


@app.task(name="bare.read")
def read(number: int) -> int:
    """Wait 10 ms."""
    Event().wait(BODY_S)
    return number


@app.task(name="bare.write")
def write(number: int) -> int:
    """Wait 10 ms."""
    Event().wait(BODY_S)
    return number


def _on(queue: str, task: Any, *args: object) -> Any:  # noqa: ANN401 - Celery's own types
    return task.si(*args).set(queue=queue)


@app.task(name="bare.first")
def first(turn: str) -> None:
    """Four reads, then the second step."""
    chord([_on(TOOLS, read, number) for number in range(4)])(_on(STEPS, second, turn))


@app.task(name="bare.second")
def second(turn: str) -> None:
    """Two writes in order, then the third step."""
    chain(_on(TOOLS, write, 0), _on(TOOLS, write, 1), _on(STEPS, third, turn)).apply_async()


@app.task(name="bare.third")
def third(turn: str) -> None:
    """Tell the client."""
    done.rpush(f"done:{turn}", "1")
