"""Deadlines that a running tool can ask about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineToken:
    """An absolute point on a monotonic clock.

    Args:
        at_s: The point, in seconds of ``clock``.
        clock: A monotonic clock, in seconds.
    """

    at_s: float
    clock: Callable[[], float]

    def remaining_s(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at_s - self.clock())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining_s() <= 0.0
