"""Monotonic time that goes on while the host sleeps."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's ``CLOCK_MONOTONIC``, which is Python's ``time.monotonic``, stands still meanwhile; macOS' does not."""


def monotonic() -> float:
    """Seconds since some point in the past, those in which the host was suspended among them."""
    return time.clock_gettime(_CLOCK)
