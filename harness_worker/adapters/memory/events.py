"""Committed events kept in this process's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness_worker.ports import Event


class MemoryEvents:
    """Implements :class:`harness_worker.ports.EventSink`.

    Attributes:
        sent: Every event so far, oldest first.
        hints: Every hint so far as (turn, type, data), oldest first.
    """

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.hints: list[tuple[str, str, Mapping[str, Any]]] = []

    def send(self, events: Sequence[Event]) -> None:
        """Keep ``events``; never raises."""
        self.sent.extend(events)

    def hint(self, turn_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Keep the hint; never raises."""
        self.hints.append((turn_id, kind, data))
