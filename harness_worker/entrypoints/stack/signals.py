"""Requests to stop: Ctrl-C, SIGTERM or a closed terminal."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType


class StopRequested(Exception):  # noqa: N818 - a wish, not an error
    """Somebody asked the stack to stop while it was starting."""


class StopSignal:
    """Remembers who asked to stop, and how urgently."""

    def __init__(self) -> None:
        self.asked = False
        """Whether to stop."""
        self.interrupted = False
        """Whether Ctrl-C was pressed."""
        self.at_once = False
        """Whether Ctrl-C was pressed once more while the stack was stopping."""
        # Not an Event: a wait holds its lock for moments, and a signal handler that interrupts the wait just then would
        # block on it for ever. A SimpleQueue may be put to at any moment.
        self._wake = SimpleQueue[None]()

    def wait(self, timeout_s: float) -> bool:
        """Wait until somebody asks to stop, at most ``timeout_s`` seconds; return whether somebody did."""
        if not self.asked:
            with suppress(Empty):
                self._wake.get(timeout=timeout_s)
        return self.asked

    def check(self) -> None:
        """Raise ``StopRequested`` if somebody asked to stop."""
        if self.asked:
            raise StopRequested

    def request(self, signum: int, _frame: FrameType | None = None) -> None:
        """Handle a signal."""
        if signum == signal.SIGINT:
            self.interrupted, self.at_once = True, self.asked
        self.asked = True
        self._wake.put(None)


@contextmanager
def stop_on_signals() -> Generator[StopSignal]:
    """Turn SIGINT, SIGTERM and SIGHUP into a :class:`StopSignal` for as long as the context lasts."""
    stop, watched = StopSignal(), [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else `nohup` is to keep the stack running
        watched.append(signal.SIGHUP)
    before = {sig: signal.signal(sig, stop.request) for sig in watched}
    try:
        yield stop
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
