"""What a worker does while its broker is away."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest
from celery import bootsteps
from celery.app.trace import build_tracer
from celery.exceptions import WorkerShutdown
from celery.worker import state
from celery.worker.consumer import consumer as consumers
from kombu import Connection
from kombu.asynchronous.hub import Hub

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.consumer import CarefulConsumer
from harness_worker.adapters.celery.tasks import ToolTask
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.config import Settings
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.wire import ToolMessage

BOOTSTEPS: Any = bootsteps


def test_timers_go_on_and_a_stop_is_obeyed_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draining and checking the pool processes are timers, which must not wait for the broker."""
    monkeypatch.setattr(state, "should_stop", None)
    consumer: Any = object.__new__(CarefulConsumer)
    consumer.hub = Hub()
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) > 1:
            state.should_stop = 0

    consumer.hub.timer.call_repeatedly(0.1, beat)
    with pytest.raises(WorkerShutdown), Connection(f"redis://127.0.0.1:{free_port()}/0") as away:
        consumer.ensure_connected(away)


def test_time_limit_that_begins_while_the_broker_is_away_outlasts_the_next_try_to_connect() -> None:
    """At the end of a call's soft limit, a timer sets its hard limit. Celery would end that with the connection."""
    consumer: Any = object.__new__(CarefulConsumer)
    consumer.hub, consumer.timer_entries_before_start = Hub(), set()
    hard: list[Any] = []
    consumer.hub.call_later(0.0, lambda: hard.append(consumer.hub.call_later(60.0, print)))
    consumer._tick()
    consumer._cancel_connection_timer_entries()
    assert [each.canceled for each in hard] == [False]


def test_reconnect_does_not_warn_of_an_option_that_is_set() -> None:
    """Celery would log two lines for each reconnection, about an option that is set on purpose."""
    consumer: Any = object.__new__(CarefulConsumer)
    consumer.app = make_app(Settings(), redis_url="redis://127.0.0.1:1/0")
    consumer.connection, consumer.channel_errors = None, ()
    consumer.on_connection_error_after_connected(OSError("gone"))


class _Asked:
    """Counts how often the broker is asked for another number of messages at a time."""

    def __init__(self) -> None:
        self.value = 1
        self.times = 0
        self._mutex = Lock()

    def set(self, _value: int) -> None:
        """Ask."""
        self.times += 1


def _end_at_once(_message: Any, _body: Any, ack: Callable[[], object], *_: Any) -> None:  # noqa: ANN401 - Celery's own
    ack()


def test_threads_that_end_tasks_after_a_reconnect_do_not_use_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ answers such a request, and two threads that read one connection get halves of frames, for ever."""
    monkeypatch.setattr(consumers, "active_requests", {"a task that goes on"})
    app = make_app(Settings(), redis_url="redis://127.0.0.1:1/0")
    pool = SimpleNamespace(num_processes=3, is_green=False)
    worker = SimpleNamespace(use_eventloop=True, semaphore=None)
    consumer: Any = CarefulConsumer(print, app=app, pool=pool, hub=Hub(), controller=worker, initial_prefetch_count=3)
    consumer.connection, consumer.qos, consumer.qos_global, consumer.restart_count = None, _Asked(), True, 1
    consumer.on_connection_error_after_connected(OSError("gone"))
    consumer.strategies["turn.advance"] = _end_at_once
    head = {"task": "turn.advance", "id": "a"}
    message: Any = SimpleNamespace(headers=head, payload=([], {}, {}), ack_log_error=print, reject_log_error=print)
    consumer.create_task_handler()(message)
    assert consumer.qos.times == 0


class _Blueprint:
    """Celery's way through the parts of a consumer, cut short by an error and ended the second time."""

    def __init__(self, *errors: Exception) -> None:
        self.state: Any = BOOTSTEPS.RUN
        self.restarts = 0
        self._errors = list(errors)

    def start(self, _consumer: object) -> None:
        """Begin, and run the event loop."""
        if self._errors:
            raise self._errors.pop()
        self.state = BOOTSTEPS.CLOSE

    def restart(self, _consumer: object) -> None:
        """Begin again."""
        self.restarts += 1


def _short_of_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize("lasts_until", ["", "a timer", "a pause"])
def test_lack_of_memory_in_the_event_loop_ends_no_worker(monkeypatch: pytest.MonkeyPatch, lasts_until: str) -> None:
    """It connects again, as after a lost connection; if it ended, all running calls would end with it."""
    made: list[Event] = []

    def event() -> Event:
        made.append(Event())
        if len(made) == 1:
            raise MemoryError
        return made[-1]

    monkeypatch.setattr(state, "should_stop", None)
    app = make_app(Settings(), redis_url="redis://127.0.0.1:1/0")
    pool, worker = (
        SimpleNamespace(num_processes=1, is_green=False, flush=print),
        SimpleNamespace(use_eventloop=True, semaphore=None),
    )
    consumer: Any = CarefulConsumer(print, app=app, pool=pool, hub=Hub(), controller=worker)
    consumer.blueprint, consumer.connection = _Blueprint(MemoryError()), Connection("memory://")
    if lasts_until == "a timer":
        consumer.hub.call_later(0.0, _short_of_memory)
    if lasts_until == "a pause":
        monkeypatch.setattr("harness_worker.adapters.celery.consumer.Event", event)
    consumer.start()
    assert consumer.blueprint.restarts == 1
    assert (len(made) > 1) is (lasts_until == "a pause")


class _Runs:
    """Pretends to run every call, and continues the canvas."""

    def run(self, _job: Job) -> Canvas:
        """See ``CallRunner.run``."""
        return Canvas.CONTINUES


def test_call_whose_chain_cannot_be_sent_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    """The call's end is stored, and a look-in sends the rest of the chain: the log has warnings without traceback."""
    app = make_app(Settings(), redis_url=f"redis://127.0.0.1:{free_port()}/0")
    app.conf.update(task_publish_retry_policy={"max_retries": 0})
    task = ToolTask("put", cast("Any", _Runs()), cast("Any", None))
    app.register_task(task)
    message = ToolMessage(turn_id="turn_1", call_id="0.0", attempt=1, read=False, tenant="default").to_kwargs()
    following = app.signature(task.name, kwargs=message, immutable=True)
    request: dict[str, Any] = {"id": "1", "hostname": "tools@here", "delivery_info": {}, "chain": [dict(following)]}
    build_tracer(task.name, task, app=app)("1", [], message, request)
    assert "Giving up refused callback publish" in caplog.text
    assert {(record.levelname, record.exc_info) for record in caplog.records} == {("WARNING", None)}
