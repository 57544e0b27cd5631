"""Runs Flower in this process, with options set only here: none is read from files, arguments or variables."""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from celery import Celery
from flower.app import Flower  # pyright: ignore[reportMissingTypeStubs] - Flower has no types
from flower.options import options  # pyright: ignore[reportMissingTypeStubs] - Flower has no types
from flower.urls import settings as flower_settings  # pyright: ignore[reportMissingTypeStubs] - Flower has no types
from tornado.httpserver import HTTPServer
from tornado.ioloop import PeriodicCallback

from harness_worker.adapters.flower.rows import readable

MAX_TASKS: Final = 10_000
PURGE_OFFLINE_AFTER_S: Final = 60
LOOK_S: Final = 10
COLUMNS: Final = "name,state,args,kwargs,received,runtime,worker"

_OPTIONS: Final[Mapping[str, object]] = {
    "max_tasks": MAX_TASKS,
    "purge_offline_workers": PURGE_OFFLINE_AFTER_S,
    "tasks_columns": COLUMNS,
    "format_task": readable,
    # Revoking or sending tasks from Flower would bypass the journal: turns are stopped through the API.
    "read_only": True,
}


def serve_flower(app: Celery, listener: socket.socket, *, credentials: str, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. Must run on the main thread, and only once in a process.

    Args:
        app: The application whose broker is watched.
        listener: A listening socket.
        credentials: ``user:password``, ASCII; required on every page except ``/healthcheck`` and ``/metrics``.
        on_ready: Called as soon as requests are answered.
    """
    logging.getLogger("tornado.access").setLevel(logging.WARNING)
    watcher = _flower(app, credentials)
    listener.setblocking(False)
    HTTPServer(watcher).add_socket(listener)
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda _signum, _frame: watcher.io_loop.add_callback_from_signal(watcher.stop))
    PeriodicCallback(lambda: look_around(watcher), LOOK_S * 1_000).start()
    watcher.io_loop.add_callback(_first_look, watcher, on_ready)
    watcher.start()


async def _first_look(watcher: Any, on_ready: Callable[[], None]) -> None:  # noqa: ANN401 - Flower has no types
    await look_around(watcher)
    on_ready()


async def look_around(watcher: Any) -> None:  # noqa: ANN401 - Flower has no types
    """Ask which workers are there; Flower itself only asks at its start, and never forgets who answered."""
    await watcher.update_workers()
    forgotten = time.time() - PURGE_OFFLINE_AFTER_S
    for name in [name for name, seen in watcher.workers.items() if seen.get("timestamp", 0.0) < forgotten]:
        del watcher.workers[name]


def _flower(app: Celery, credentials: str) -> Any:  # noqa: ANN401 - Flower has no types
    chosen = cast("Any", options)
    for name, value in {**_OPTIONS, "basic_auth": [credentials]}.items():
        setattr(chosen, name, value)
    settings = {**cast("dict[str, Any]", flower_settings), "cookie_secret": secrets.token_urlsafe(64)}
    watcher = cast("Any", Flower)(capp=app, options=chosen, **settings)
    watcher.events.on_event = partial(_note, watcher.events.on_event)
    return watcher


def _note(note: Callable[[dict[str, Any]], None], event: dict[str, Any]) -> None:
    """Pass an event on, unless it is a producer's, which would show all arguments, including users' texts."""
    if event["type"] != "task-sent":
        note(event)
