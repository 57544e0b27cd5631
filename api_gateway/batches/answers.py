"""The API's answers about batches."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from api_gateway.turns.answers import Answer, Turn

BatchStatus: TypeAlias = Literal["in_progress", "canceling", "ended"]


class BatchCounts(Answer):
    """How many turns of a batch are in each status."""

    queued: int = 0
    running: int = 0
    requires_action: int = 0
    completed: int = 0
    incomplete: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def unfinished(self) -> int:
        """How many turns have not ended."""
        return self.queued + self.running + self.requires_action


class Batch(Answer):
    """Turns that were posted together. Times are RFC 3339 UTC."""

    id: str
    status: BatchStatus = Field(
        description="`ended` once every turn has ended; `canceling` while all that have not were asked to stop"
    )
    total: int = Field(description="how many turns were posted; turns removed since then are in none of `counts`")
    counts: BatchCounts
    metadata: dict[str, str]
    created_at: str
    ended_at: str | None
    results_url: str = Field(description="the path of the results: the turns that have ended, a JSON object a line")


class BatchPage(Answer):
    """Batches, newest first; pass ``next`` as ``after`` to get the next page."""

    data: list[Batch]
    next: str | None


class BatchResult(Answer):
    """A line of a batch's results: a turn that has ended, and the client's name for it."""

    custom_id: str
    turn: Turn
