"""The wish to stop: from Ctrl-C, SIGTERM or a closed terminal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class StopRequested(Exception):  # noqa: N818 - a wish, not an error
    """Somebody asked the stack to stop while it was starting."""


class StopSignal:
    """Remembers who asked to stop, and how urgently."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self.interrupted = False
        """Whether Ctrl-C was pressed."""
        self.at_once = False
        """Whether Ctrl-C was pressed once more while the stack was stopping."""

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return self._asked.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until somebody asks, at most ``timeout_s`` seconds; whether somebody did."""
        return self._asked.wait(timeout_s)

    def check(self) -> None:
        """Go on, or raise ``StopRequested``."""
        if self.asked:
            raise StopRequested

    def request(self, signum: int, _frame: FrameType | None = None) -> None:
        """Take a signal."""
        if signum == signal.SIGINT:
            self.interrupted, self.at_once = True, self.asked
        self._asked.set()


@contextmanager
def stop_on_signals() -> Generator[StopSignal]:
    """Turn SIGINT, SIGTERM and SIGHUP into a :class:`StopSignal` for as long as the context lasts."""
    stop = StopSignal()
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {sig: signal.signal(sig, stop.request) for sig in watched}
    try:
        yield stop
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
