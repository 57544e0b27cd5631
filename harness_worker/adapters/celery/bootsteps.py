"""Boot steps of a worker: what runs on the timer of its event loop, in the main thread, and the drain among it."""

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
    """A boot step that calls functions from the worker's own timer.

    Args:
        ticks: Given the worker, pairs of seconds and the function to call so often.
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
    """Stops taking work on a signal, lets what runs finish, and ends what does not within the grace time.

    Args:
        grace_s: Seconds for what runs to finish.
    """

    def __init__(self, *, grace_s: float) -> None:
        self._grace_s = grace_s
        self._asked = False
        self._until: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether somebody asked this worker to stop."""
        return self._asked

    def ask(self) -> None:
        """Ask for the drain; the timer does it."""
        self._asked = True

    def on_signal(self, _signum: int, _frame: object) -> None:
        """Ask for it by a signal."""
        self.ask()

    def tick(self, worker: Any) -> None:  # noqa: ANN401 - a celery.worker.WorkController
        """Go on with the drain of ``worker``, if it was asked for."""
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
            _take_no_more(worker.consumer, queue)


def _take_no_more(consumer: Any, queue: str) -> None:  # noqa: ANN401 - a CarefulConsumer
    if consumer.connection is None:  # the broker is away; when it is back this queue is not asked for
        consumer.app.amqp.queues.deselect(queue)
        return
    with ignore_errors(consumer.connection):
        consumer.cancel_task_queue(queue)


def _hand_back(worker: Any) -> None:  # noqa: ANN401 - a celery.worker.WorkController
    """Leave with work under way: Celery ends its pool processes first; threads it cannot end, so leave without them."""
    if worker.pool.signal_safe:
        os.kill(os.getpid(), signal.SIGQUIT)
    else:
        state.should_terminate = os.EX_OK
