"""Taking messages from the broker: malformed ones do not end the worker, whose timers run on while the broker is away.

It also sends task events, for Flower, several at once.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from threading import Event
from typing import Any, Final, cast

from celery.exceptions import CPendingDeprecationWarning
from celery.utils.time import maybe_iso8601
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown

from harness_worker.adapters.celery.pool_processes import ToolPool
from harness_worker.adapters.celery.results import telling_if_possible
from harness_worker.adapters.celery.transport import MISSHAPEN, log_dropped, with_our_channels

log = logging.getLogger(__name__)

RECONNECT_S: Final = 1.0
TICK_S: Final = 0.1

WITHHELD: Final = "withheld: it may tell what somebody said"
"""What the log shows instead of a message."""


class CarefulConsumer(Consumer):
    """Drops messages over which Celery's own consumer would end, and keeps its timers going without a broker.

    A broker that refuses counts as away, such as a Redis that is a replica for the moment, or has too few replicas.
    So does a lack of memory in the event loop. Celery's own consumer would end over either, together with everything
    that is running.
    """

    hub: Any
    timer_entries_before_start: set[Any] | None
    connection_errors: tuple[type[Exception], ...]
    channel_errors: tuple[type[Exception], ...]

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own signature
        super().__init__(*args, **options)
        self.channel_errors += (MemoryError,)
        self.connection_errors += self.channel_errors

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Connect again, but only after a pause if the broker refused or memory was short, as they would again.

        Running tasks go on, as the application's options say; Celery would warn each time that this default of its own
        will change.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)
        if isinstance(exc, self.channel_errors):
            self._wait()

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:  # noqa: ANN401 - Celery's own signature
        """Return Celery's handler of one message, guarded so that it never raises over the message's content."""
        handle: Callable[[Any], Any] = super().create_task_handler(*args, **options)

        def receive(message: Any) -> None:  # noqa: ANN401 - a kombu message
            try:
                _check_shape(message)
                handle(message)
            except MISSHAPEN as error:
                log_dropped(error)
                if not message.acknowledged:
                    message.reject()

        return receive

    def on_unknown_task(self, body: Any, message: Any, exc: Any) -> None:  # noqa: ANN401, ARG002 - Celery's own signature
        """Refuse a task that is unknown here; Celery's own method would log its whole content."""
        with telling_if_possible(message.headers["id"]):
            super().on_unknown_task(WITHHELD, _redacted(message), exc)

    def on_decode_error(self, message: Any, exc: Exception) -> None:  # noqa: ANN401 - Celery's own signature
        """Drop a message that cannot be decoded; Celery's own method would log its whole content."""
        log_dropped(exc)
        message.ack()

    def add_task_queue(self, queue: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - celery-types has it wrong
        """Consume another queue, for a control command; an invalid one is not tried again after a reconnect."""
        try:
            super().add_task_queue(queue, *args, **options)
        except MISSHAPEN as error:
            log_dropped(error)
            self.cancel_task_queue(queue)

    def cancel_task_queue(self, queue: Any) -> None:  # noqa: ANN401 - whatever a command holds
        """Stop consuming a queue, for a control command."""
        try:
            super().cancel_task_queue(queue)
        except MISSHAPEN as error:
            log_dropped(error)

    def on_send_event_buffered(self) -> Any:  # noqa: ANN401 - celery-types has it wrong; Celery asks for nothing
        """Send nothing: Celery would send at each turn of its event loop what ``flush_events`` sends together later.

        Nor may the thread that fills the buffer send it: RabbitMQ confirms what is sent, and only the main thread
        reads from the connection.
        """
        dispatcher: Any = getattr(self, "event_dispatcher", None)
        if dispatcher is not None:
            dispatcher.buffer_limit = sys.maxsize

    def flush_events(self) -> None:
        """Send the task events that have gathered since the last time. Called from the worker's timer."""
        dispatcher: Any = getattr(self, "event_dispatcher", None)
        if dispatcher is not None and self.connection is not None:
            dispatcher.flush()

    def ensure_connected(self, conn: Any) -> Any:  # noqa: ANN401 - a kombu connection, Celery's own signature
        """Return ``conn`` once the broker answers; until then the drain, time limits and checks of processes go on.

        Celery's own method waits longer each time, up to half a minute, with its event loop blocked: nobody would
        notice that a process died, and SIGTERM would have no effect.
        """
        with_our_channels(conn.transport)
        conn.ensure_connection(
            _log_unreachable, interval_start=RECONNECT_S, interval_step=0, interval_max=RECONNECT_S, callback=self._tick
        )
        self.first_connection_attempt = False
        return conn

    def _wait(self) -> None:
        until = time.monotonic() + RECONNECT_S
        while time.monotonic() < until:
            with suppress(MemoryError):  # it may be short again
                Event().wait(TICK_S)
                self._tick()

    def _tick(self) -> None:
        """Called at least once a second while the broker is away, and the event loop does not run."""
        if isinstance(self.pool, ToolPool):
            self.pool.read_messages()
        if self.hub is not None:
            self._fire_timers()
        maybe_shutdown()

    def _fire_timers(self) -> None:
        """Fire the timers that are due.

        Celery cancels what is set while it connects once that connection is lost, but what timers set here, such as the
        hard limit of a call, must stay. Its look at a process that does not begin in time fails if that was started
        before the broker went away.
        """
        before = self._timer_entries()
        with suppress(AssertionError):
            self.hub.fire_timers()
        if self.timer_entries_before_start is not None:
            self.timer_entries_before_start |= self._timer_entries() - before

    def _timer_entries(self) -> set[Any]:
        return {each.entry for each in self.hub.timer.queue}


def _check_shape(message: Any) -> None:  # noqa: ANN401 - a kombu message
    """Refuse what Celery would accept and then fail on, after it has counted the request as under way.

    Raises:
        TypeError, ValueError, LookupError, OverflowError: It is no task of our version of Celery's protocol.
    """
    if "task" not in message.headers:
        raise ValueError("its headers name no task: a producer of Celery's must have task_protocol=2")
    limits = message.headers.get("timelimit") or (None, None)
    args, kwargs, embed = message.payload
    is_task = isinstance(args, list) and isinstance(kwargs, dict) and isinstance(embed, dict)
    if not isinstance(message.headers["id"], str) or "self" in kwargs:
        raise ValueError("not the id of a task, or an argument named self, of which Python has one already")
    maybe_iso8601(message.headers.get("expires"))
    soft, hard = limits
    are_limits = all(limit is None or (isinstance(limit, int | float) and isfinite(limit)) for limit in (soft, hard))
    if not is_task or not are_limits:
        raise ValueError("not the body and time limits of a task")
    if not _are_stamps(message.headers.get("stamped_headers"), message.headers.get("stamps")):
        raise ValueError("not the stamps of a task")
    if not isinstance(message.headers.get("shadow"), str | None) or not _can_be_followed(embed):
        raise ValueError("not the name of a task, or the tasks that follow it")
    if message.headers.get("eta") is not None:
        raise ValueError("it is for later, with an ETA or a countdown: the worker would be given it again and again")


def _can_be_followed(embed: Any) -> bool:  # noqa: ANN401 - whatever a message holds
    lists = [embed.get(name) for name in ("callbacks", "errbacks", "chain")]
    return all(map(_are_tasks, [*lists, [embed["chord"]] if embed.get("chord") else None]))


def _are_tasks(given: Any) -> bool:  # noqa: ANN401 - whatever a message holds
    if not isinstance(given, list | None):
        return False
    tasks = cast("list[Any]", given or [])
    return all(isinstance(task, dict) and isinstance(cast("Any", task).get("task"), str) for task in tasks)


def _redacted(message: Any) -> Any:  # noqa: ANN401 - a kombu message
    message.headers = {**message.headers, "argsrepr": WITHHELD, "kwargsrepr": WITHHELD}
    return message


def _are_stamps(names: Any, stamps: Any) -> bool:  # noqa: ANN401 - whatever a message holds
    if not isinstance(names, list | None) or not isinstance(stamps, dict | None):
        return False
    return all(isinstance(name, str) for name in cast("list[Any]", names or []))


def _log_unreachable(error: Exception, interval_s: float) -> None:
    log.warning("the broker does not answer, trying again in %g s: %s", interval_s, error)
