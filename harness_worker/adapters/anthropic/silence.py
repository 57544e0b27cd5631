"""Detects a stream that has stalled, which would otherwise use up its turn's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx2

from harness_worker.errors import TransientError

FIRST_BYTE_S: Final = 300.0
"""How long a reply may take to begin, in seconds: Claude may read a long prompt for minutes first."""

PAUSE_S: Final = 60.0
"""How long a reply may pause once it has begun, in seconds: Claude sends a ping about every 30 s while it thinks."""


class Silence:
    """Measures how long nothing of a reply has come. It counts bytes, because the SDK does not pass on pings.

    Args:
        clock: Monotonic seconds.

    Attributes:
        response: The response that the bytes belong to, once there is one; set by the thread that reads it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.response: httpx2.Response | None = None
        self._clock = clock
        self._received = 0
        self._since_s = clock()

    def check(self) -> None:
        """Check whether anything came since the last check.

        Raises:
            TransientError: Nothing has come for too long.
        """
        received = self.response.num_bytes_downloaded if self.response is not None else 0
        if received != self._received:
            self._received, self._since_s = received, self._clock()
        most_s = PAUSE_S if received else FIRST_BYTE_S
        if self._clock() - self._since_s >= most_s:
            raise TransientError(f"the model's provider sent nothing for {most_s:g} s")
