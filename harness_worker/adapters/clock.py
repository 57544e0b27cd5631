"""This process's monotonic clock."""

from __future__ import annotations

from threading import Event

from harness_worker import clock


class SystemClock:
    """Implements ``ports.Clock``."""

    def monotonic(self) -> float:
        """Seconds since some point in the past, including those in which the host was suspended."""
        return clock.monotonic()

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``."""
        Event().wait(seconds)
