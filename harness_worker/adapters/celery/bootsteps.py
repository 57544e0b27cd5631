"""Boot steps of a worker: what runs on the timer of its event loop, in the main thread, including the drain."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from celery import bootsteps
from celery.worker import state
from kombu.common import ignore_errors

log = logging.getLogger(__name__)

Ticks: TypeAlias = Callable[[Any], Iterable[tuple[float, Callable[[], None]]]]

DRAIN_TICK_S = 0.1
LAST_RESORT_S = 3.0


def ticker(ticks: Ticks) -> type[bootsteps.StartStopStep]:
    """Make a boot step that calls functions from the worker's own timer.

    Args:
        ticks: Given the worker, returns pairs of an interval in seconds and the function to call at that interval.
    """

    class Ticker(bootsteps.StartStopStep):
        requires = ("celery.worker.components:Timer", "celery.worker.components:Pool")

        def __init__(self, parent: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Celery's own signature
            self._timers: list[Any] = []
            super().__init__(parent, **kwargs)

        def start(self, parent: Any) -> None:  # noqa: ANN401 - Celery's own signature
            self._timers = [parent.timer.call_repeatedly(every_s, tick) for every_s, tick in ticks(parent)]

        def stop(self, parent: Any) -> None:  # noqa: ANN401, ARG002 - Celery's own signature
            for timer in self._timers:
                timer.cancel()

    return Ticker


class Drain:
    """Stops taking work when asked, lets running tasks finish, and ends those that do not within the grace time.

    Args:
        grace_s: The grace time, in seconds.
    """

    def __init__(self, *, grace_s: float) -> None:
        self._grace_s = grace_s
        self._asked = False
        self._until: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether this worker was asked to stop."""
        return self._asked

    def ask(self) -> None:
        """Ask for the drain, which the timer carries out."""
        self._asked = True

    def on_signal(self, _signum: int, _frame: object) -> None:
        """Ask for the drain, as the handler of a signal."""
        self.ask()

    def tick(self, worker: Any) -> None:  # noqa: ANN401 - a celery.worker.WorkController
        """Take the drain of ``worker`` one step further, if it was asked for."""
        if not self._asked or state.should_stop is not None:
            return
        if self._until is None:
            self._begin(worker)
        elif not state.reserved_requests:
            state.should_stop = os.EX_OK
        elif time.monotonic() > self._until:
            log.warning("%d tasks did not finish in %g s; ending them", len(state.reserved_requests), self._grace_s)
            _hand_back(worker)

    def _begin(self, worker: Any) -> None:  # noqa: ANN401 - a celery.worker.WorkController
        self._until = time.monotonic() + max(0.0, self._grace_s - LAST_RESORT_S)
        log.info("draining: no new work, %d tasks to finish", len(state.reserved_requests))
        for queue in tuple(worker.app.amqp.queues.consume_from):
            _stop_consuming(worker.consumer, queue)


def _stop_consuming(consumer: Any, queue: str) -> None:  # noqa: ANN401 - a CarefulConsumer
    if consumer.connection is None:  # the broker is away; this queue is not consumed again when it is back
        consumer.app.amqp.queues.deselect(queue)
        return
    with ignore_errors(consumer.connection):
        consumer.cancel_task_queue(queue)


def _hand_back(worker: Any) -> None:  # noqa: ANN401 - a celery.worker.WorkController
    """Exit while work is under way: Celery ends pool processes first, but cannot end threads, which are abandoned."""
    if worker.pool.signal_safe:
        os.kill(os.getpid(), signal.SIGQUIT)
    else:
        state.should_terminate = os.EX_OK
