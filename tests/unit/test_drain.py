"""When a worker drains, and when it has nothing left to do or no time left."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from celery.worker import state
from celery.worker.control import Panel

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.bootsteps import LAST_RESORT_S, Drain
from harness_worker.adapters.celery.stopping import serve_drain
from harness_worker.config import Settings
from harness_worker.wire import DRAIN_COMMAND


class Shared(WeakSet[Any]):
    """Requests that other threads take and end: walking through them may fail at any time."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("Set changed size during iteration")


def worker_of(**pool: object) -> Any:  # noqa: ANN401 - a part of a celery.worker.WorkController
    """A worker that consumes nothing, with such a pool."""
    app = SimpleNamespace(amqp=SimpleNamespace(queues=SimpleNamespace(consume_from=())))
    return SimpleNamespace(app=app, pool=SimpleNamespace(**pool))


def test_drain_waits_for_tasks_without_walking_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads take and end requests meanwhile."""
    under_way = threading.Event()
    requests = Shared()
    requests.add(under_way)
    monkeypatch.setattr(state, "reserved_requests", requests)
    monkeypatch.setattr(state, "should_stop", None)
    drain = Drain(grace_s=1000)
    drain.ask()
    worker = worker_of()
    for _ in range(2):
        drain.tick(worker)
    assert state.should_stop is None
    requests.discard(under_way)
    drain.tick(worker)
    assert state.should_stop is not None


@pytest.mark.parametrize("has_processes", [True, False])
def test_drain_ends_what_is_left_in_time(has_processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment before its grace is over, at which it would be killed; processes are ended first, by Celery."""
    signals: list[int] = []
    monkeypatch.setattr(state, "reserved_requests", {"a task"})
    monkeypatch.setattr(state, "should_stop", None)
    monkeypatch.setattr(state, "should_terminate", None)
    worker = worker_of(signal_safe=has_processes)
    drain = Drain(grace_s=LAST_RESORT_S)
    drain.ask()
    before = signal.signal(signal.SIGQUIT, lambda signum, _frame: signals.append(signum))
    try:
        drain.tick(worker)
        began = time.monotonic()
        while time.monotonic() <= began:
            pass
        drain.tick(worker)
    finally:
        signal.signal(signal.SIGQUIT, before)
    assert (signals, state.should_terminate) == (([signal.SIGQUIT], None) if has_processes else ([], os.EX_OK))


def test_drain_that_begins_while_the_broker_is_away_takes_no_work_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no connection over which to say so; the queues are not consumed again over the next one."""
    monkeypatch.setattr(state, "should_stop", None)
    app = make_app(Settings(), redis_url="redis://127.0.0.1:1/0")
    app.amqp.queues.select(["turns", "tools"])
    drain = Drain(grace_s=1000)
    drain.ask()
    drain.tick(SimpleNamespace(app=app, consumer=SimpleNamespace(app=app, connection=None)))
    assert not app.amqp.queues.consume_from


def test_worker_that_is_only_asked_whether_it_drains_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for others to be gone asks every worker."""
    monkeypatch.setattr(Panel, "data", dict(Panel.data))
    serve_drain(Drain(grace_s=1000))
    answer: Any = Panel.data[DRAIN_COMMAND]
    answers = [answer(None), answer(None, begin=True), answer(None)]
    assert answers == [{"draining": False}, {"draining": True}, {"draining": True}]
