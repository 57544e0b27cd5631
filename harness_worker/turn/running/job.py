"""What a tool process is sent, and what it says when that is served."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness_worker.ports import RunningCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(RunningCall):
    """One message to a tool process: the call that was sent, and the process it reached.

    Args:
        tool: The tool's name.
        is_read: Whether the gate decides its outcome; else SQL does.
    """

    tool: str
    is_read: bool

    def __str__(self) -> str:
        return f"call {self.call_id} of turn {self.turn_id}"


class Canvas(StrEnum):
    """What the Celery canvas that sent a call does once its message is served."""

    CONTINUES = "continues"
    """The chord counts its part, the chain sends its next link."""
    STAYS = "stays"
    """It stays where it is: some other message or a coordinator takes care."""
