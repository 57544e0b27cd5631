"""Events of turns without live readers: they are in SQL, and are sent nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness_worker.core.records import Event
from harness_worker.wire import HintType


class NoEvents:
    """Implements ``ports.EventSink``."""

    def send(self, events: Sequence[Event]) -> None:
        """Nobody watches."""

    def hint(self, turn_id: str, kind: HintType, data: Mapping[str, Any]) -> None:
        """Nobody watches."""
