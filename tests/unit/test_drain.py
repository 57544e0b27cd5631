"""The drain of a worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery.worker import state

from harness_worker.adapters.celery.bootsteps import Drain


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Some tasks are under way, and another thread goes on taking and ending more."""
    requests: Any = type(state.reserved_requests)()
    monkeypatch.setattr(state, "reserved_requests", requests)
    monkeypatch.setattr(state, "should_stop", None)
    under_way, others = [threading.Event() for _ in range(50)], [threading.Event() for _ in range(50)]
    for each in under_way:
        requests.add(each)
    is_over = threading.Event()

    def take_and_end() -> None:
        while not is_over.is_set():
            for each in others:
                requests.add(each)
            for each in others:
                requests.discard(each)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=take_and_end)
    thread.start()
    yield
    is_over.set()
    thread.join()
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("busy")
def test_drain_waits_for_tasks_while_other_threads_take_and_end_some() -> None:
    """It looks at requests that are not its own thread's."""
    drain = Drain(grace_s=1000)
    drain.ask()
    queues = SimpleNamespace(consume_from=())
    worker = SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues)))
    for _ in range(5_000):
        drain.tick(cast("Any", worker))
    assert state.should_stop is None
