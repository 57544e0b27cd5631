"""Boot steps of a worker: heartbeats of running calls, and the drain.

Both run on the timer of the consumer's event loop, in the main thread: a thread of ours in a process that forks could
leave a child with a lock shut for ever.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.worker import state

log = logging.getLogger(__name__)

DRAIN_TICK_S = 0.1
LAST_RESORT_S = 3.0


class Ticker(bootsteps.StartStopStep):
    """Calls ``app.harness_ticks`` (pairs of seconds and a function) from the worker's own timer."""

    requires = {"celery.worker.components:Timer", "celery.worker.components:Pool"}  # noqa: RUF012 - Celery's own form

    def __init__(self, parent: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Celery's own signature
        self._timers: list[Any] = []
        super().__init__(parent, **kwargs)

    def start(self, parent: Any) -> None:  # noqa: ANN401 - Celery's own signature
        """Begin to tick."""
        for every_s, tick in parent.app.harness_ticks(parent):
            self._timers.append(parent.timer.call_repeatedly(every_s, tick))

    def stop(self, parent: Any) -> None:  # noqa: ANN401, ARG002 - Celery's own signature
        """Tick no more."""
        for timer in self._timers:
            timer.cancel()


class Drain:
    """Stops taking work on a signal, lets what runs finish, and hands back what does not within the grace time.

    Args:
        worker: The Celery worker.
        grace_s: Seconds for what runs to finish.
    """

    def __init__(self, worker: Any, *, grace_s: float) -> None:  # noqa: ANN401 - a celery.worker.WorkController
        self._worker = worker
        self._grace_s = grace_s
        self._asked = False
        self._until: float | None = None

    def on_signal(self, _signum: int, _frame: object) -> None:
        """Ask for the drain; the timer does it."""
        self._asked = True

    def tick(self) -> None:
        """Go on with the drain, if it was asked for."""
        if not self._asked or state.should_stop is not None:
            return
        if self._until is None:
            self._begin()
        elif not tuple(state.reserved_requests):
            state.should_stop = os.EX_OK
        elif time.monotonic() > self._until:
            log.warning(
                "%d tasks did not finish in %g s; handing them back", len(state.reserved_requests), self._grace_s
            )
            os.kill(os.getpid(), signal.SIGQUIT)

    def _begin(self) -> None:
        self._until = time.monotonic() + max(0.0, self._grace_s - LAST_RESORT_S)
        log.info("draining: no new work, %d tasks to finish", len(state.reserved_requests))
        for queue in tuple(self._worker.app.amqp.queues.consume_from):
            self._worker.consumer.cancel_task_queue(queue)


def guarded(name: str, work: Callable[[], object], errors: type[Exception]) -> Callable[[], None]:
    """``work`` for a timer: what goes wrong with the outside is logged, and the next tick follows."""

    def tick() -> None:
        try:
            work()
        except errors as error:
            log.warning("%s: %s", name, error)

    return tick
