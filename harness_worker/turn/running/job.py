"""A message to a tool process, and what happens to its canvas once it is served."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness_worker.ports import RunningCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(RunningCall):
    """One message to a tool process: the call that was sent, and the process that received it.

    Args:
        tool: The tool's name.
        is_read: Whether the gate decides its outcome; else SQL does.
    """

    tool: str
    is_read: bool


class Canvas(StrEnum):
    """What happens to the Celery canvas that sent a call once the call's message is served."""

    CONTINUES = "continues"
    """The chord counts this part, or the chain sends its next link."""
    STAYS = "stays"
    """The canvas stays where it is: another message, or a coordinator, takes care of the rest."""
