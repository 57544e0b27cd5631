"""When a worker that drains has nothing left to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from weakref import WeakSet

import pytest
from celery.worker import state

from harness_worker.adapters.celery.bootsteps import Drain


class Shared(WeakSet[Any]):
    """Requests that other threads take and end: walking through them may fail at any time."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("Set changed size during iteration")


def test_drain_waits_for_tasks_without_walking_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads take and end requests meanwhile."""
    under_way = threading.Event()
    requests = Shared()
    requests.add(under_way)
    monkeypatch.setattr(state, "reserved_requests", requests)
    monkeypatch.setattr(state, "should_stop", None)
    drain = Drain(grace_s=1000)
    drain.ask()
    queues = SimpleNamespace(consume_from=())
    worker = cast("Any", SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
    for _ in range(2):
        drain.tick(worker)
    assert state.should_stop is None
    requests.discard(under_way)
    drain.tick(worker)
    assert state.should_stop is not None
