"""Monotonic time that goes on while the host is suspended."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's ``CLOCK_MONOTONIC``, which ``time.monotonic`` uses, stops while the host is suspended; macOS's does not."""


def monotonic() -> float:
    """Seconds since some point in the past, including those in which the host was suspended."""
    return time.clock_gettime(_CLOCK)
