"""Decides when a child that died is started again."""

from __future__ import annotations

import time
from typing import Final

_FIRST_S: Final = 0.2
_LONGEST_S: Final = 5.0
_LONGEST_AFTER_READY_S: Final = 1.0
_HEALTHY_S: Final = 30.0


class Backoff:
    """A pause that grows with each early exit, and is reset once a process has run for long.

    A child that cannot even start waits longer than one that was killed at work, because that one's work is waiting.
    """

    def __init__(self) -> None:
        self._next_s = _FIRST_S
        self._due_at: float | None = None

    @property
    def pending(self) -> bool:
        """Whether a restart is pending."""
        return self._due_at is not None

    def died(self, *, lived_s: float, was_ready: bool) -> float:
        """Record that a process ended after ``lived_s`` seconds, and whether it had become ready.

        Returns:
            Seconds until the restart.
        """
        delay_s = _FIRST_S if lived_s > _HEALTHY_S else self._next_s
        delay_s = min(delay_s, _LONGEST_AFTER_READY_S if was_ready else _LONGEST_S)
        self._next_s = delay_s * 2
        self._due_at = time.monotonic() + delay_s
        return delay_s

    def is_due(self) -> bool:
        """Whether the pause is over."""
        return self._due_at is not None and time.monotonic() >= self._due_at

    def restarted(self) -> None:
        """Record that the restart was made."""
        self._due_at = None
