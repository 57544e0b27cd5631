"""Committed events kept in this process's memory."""

from __future__ import annotations

from collections.abc import Sequence

from harness_worker.ports import Event


class MemoryEvents:
    """Implements :class:`harness_worker.ports.EventSink`.

    Attributes:
        sent: Every event so far, oldest first.
    """

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def send(self, events: Sequence[Event]) -> None:
        """Keep ``events``; never raises."""
        self.sent.extend(events)
