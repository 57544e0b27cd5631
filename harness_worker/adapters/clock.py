"""This process's monotonic clock."""

from __future__ import annotations

import time
from threading import Event


class SystemClock:
    """Implements ``ports.Clock``."""

    def monotonic(self) -> float:
        """Seconds since some point in the past."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``."""
        Event().wait(seconds)
