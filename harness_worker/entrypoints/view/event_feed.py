"""A turn's events on a thread of their own, while the caller draws."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Self

from harness_worker.wire import JsonObject


class EventFeed:
    """Takes events as they come. A context manager.

    Args:
        events: The events.
    """

    def __init__(self, events: Iterable[JsonObject]) -> None:
        self._source = events
        self._left = threading.Event()
        self._queue: queue.SimpleQueue[JsonObject | Exception] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="events", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()

    def ready(self, timeout_s: float) -> list[JsonObject]:
        """The events that have come since the last call; waits for the first of them.

        Raises:
            HarnessError: Following failed; see :meth:`GatewayClient.events`.
        """
        events: list[JsonObject] = []
        while True:
            try:
                found = self._queue.get(timeout=0.0 if events else timeout_s)
            except queue.Empty:
                return events
            if isinstance(found, Exception):
                if not events:
                    raise found
                self._queue.put(found)  # it is the last: these events come before it
                return events
            events.append(found)

    def _read(self) -> None:
        try:
            for event in self._source:
                self._queue.put(event)
                if self._left.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - never raises: whoever takes events gets it
            self._queue.put(error)
