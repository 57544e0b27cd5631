"""Runs something at an interval, on a thread beside the tasks of a process."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from contextlib import suppress

from harness_worker.errors import SYSTEM_ERRORS

log = logging.getLogger(__name__)


class Rounds(ABC):
    """A thread that calls :meth:`_round` at an interval, from :meth:`start` to :meth:`stop`, whatever a round raises.

    Args:
        name: The thread's name.
        every_s: Seconds between two rounds.
    """

    def __init__(self, name: str, every_s: float) -> None:
        self._name = name
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the first round comes after one interval."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; returns when a round that is running has ended."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._stop.wait(self._every_s):
                    self._round()
            except BaseException as error:  # noqa: BLE001 - the thread's boundary: the process would go on without it
                with suppress(Exception):  # memory may still be short
                    self._log(error)

    def _log(self, error: BaseException) -> None:
        if isinstance(error, SYSTEM_ERRORS):
            log.warning("%s: a round failed: %r", self._name, error)
        else:
            log.error("%s: a round failed", self._name, exc_info=error)

    @abstractmethod
    def _round(self) -> None:
        """Do one round; an exception is logged, and the next round follows."""
