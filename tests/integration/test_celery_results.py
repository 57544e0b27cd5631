"""What a producer is told by the result of its task, where Redis refuses for a moment to keep it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Task
from celery.app.trace import build_tracer
from celery.exceptions import Reject
from celery.signals import task_internal_error
from redis import Redis

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.results import ChordResults
from harness_worker.config import Settings
from harness_worker.errors import TransientError

# Celery's tracer has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false


class Storing(Task[..., str]):
    """A task whose producer waits for its result, while another program uses the result's key."""

    name = "storing"
    ignore_result = False
    track_started = False

    def __init__(self, redis: Redis, error: Exception | None) -> None:
        self.redis = redis
        self.error = error

    def run(self) -> str:
        """Spoil the key, then end."""
        self.redis.lpush(_key(str(self.request.id)), "not a result")
        if self.error is not None:
            raise self.error
        return "stored"


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    """A client of the Redis that keeps results."""
    with Redis.from_url(valkey_url) as redis:
        yield redis


def _key(task_id: str) -> str:
    return f"celery-task-meta-{task_id}"


@pytest.mark.parametrize("error", [None, ValueError("wrong")], ids=["done", "failed"])
def test_result_that_cannot_be_kept_for_a_moment_is_no_failure(
    valkey_url: str, redis: Redis, error: Exception | None
) -> None:
    """The message comes again, whether the task was done or failed; Celery would keep the refusal as its failure."""
    app = make_app(Settings(), redis_url=valkey_url)
    task: Any = app.register_task(Storing(redis, error))
    task_id = uuid.uuid4().hex

    def passes(**_: object) -> None:
        redis.delete(_key(task_id))

    task_internal_error.connect(passes, weak=False)
    try:
        with pytest.warns(RuntimeWarning, match="WRONGTYPE"), pytest.raises(Reject) as again:
            build_tracer(task.name, task, app=app)(task_id, [], {}, {"id": task_id, "delivery_info": {}})
    finally:
        task_internal_error.disconnect(passes)
    assert getattr(again.value, "requeue", False)
    assert redis.get(_key(task_id)) is None
    assert isinstance(app.backend, ChordResults)
    app.backend.client.close()


def test_turn_that_could_not_be_stored_for_a_moment_is_no_failure(valkey_url: str) -> None:
    """Its message comes again, wherever its task met the error; the producer would take a failure for final."""
    app = make_app(Settings(), redis_url=valkey_url)
    with pytest.raises(Reject) as again:
        app.backend.mark_as_failure(uuid.uuid4().hex, TransientError("the system failed"))
    assert getattr(again.value, "requeue", False)
