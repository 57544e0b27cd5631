"""What crosses process borders: task and queue names, statuses, messages, and the time and id formats.

Shared by the worker and the gateway; knows neither.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

ADVANCE_TASK: Final = "turn.advance"
TOOL_TASK_PREFIX: Final = "tool."
DEFAULT_TOOL_QUEUE: Final = "tools"
EVENT_STREAM: Final = "harness:events"
"""One Redis stream for every turn's live events; each gateway process reads it once."""

ARTIFACT_THRESHOLD_CHARS: Final = 12_000


class Priority(StrEnum):
    """Who waits for a turn; each has a queue of its own."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


class TurnStatus(StrEnum):
    """Where a turn stands, as clients see it."""

    QUEUED = "queued"
    RUNNING = "running"
    REQUIRES_ACTION = "requires_action"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing about the turn changes any more."""
        return self in FINAL_STATUSES


FINAL_STATUSES: Final = frozenset(
    {TurnStatus.COMPLETED, TurnStatus.INCOMPLETE, TurnStatus.FAILED, TurnStatus.CANCELLED}
)


class StopReason(StrEnum):
    """Why a turn ended."""

    END_TURN = "end_turn"
    MAX_STEPS = "max_steps"
    DEADLINE = "deadline"
    BUDGET = "budget"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    NO_PROGRESS = "no_progress"
    MODEL_ERROR = "model_error"
    SCRIPT_EXHAUSTED = "script_exhausted"
    INTERNAL = "internal"
    CANCELLED = "cancelled"


def turn_queue(priority: str) -> str:
    """The queue of a turn's wake-ups."""
    return f"turns.{priority}"


def tool_task(name: str) -> str:
    """The Celery task name of a tool."""
    return TOOL_TASK_PREFIX + name


def rfc3339(at: float | None) -> str | None:
    """Seconds since the epoch as RFC 3339 UTC to the microsecond."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
