"""What clients send to make batches and to read their results."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, Literal

from pydantic import Field

from api_gateway.problems import MOST_PROBLEMS, FieldProblem, invalid
from api_gateway.requests.fields import ClosedBody, Metadata, Text
from api_gateway.requests.queries import ClosedQuery
from api_gateway.requests.turns import TurnRequest
from harness_worker.wire import Priority

MOST_REQUESTS: Final = 10_000
"""The most turns of a batch. They are stored in one transaction, and all other writers to SQLite wait for it."""


class BatchParams(TurnRequest):
    """One turn of a batch, as ``POST /v1/turns`` takes it, but it always waits for those before it in its session."""

    multitask: Literal["enqueue"] | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - frozen

    @property
    def queue_priority(self) -> Priority:
        """The turn's priority; batch unless the request says otherwise."""
        return Priority(self.priority or Priority.BATCH)


class BatchItem(ClosedBody):
    """One turn of a batch, and the client's name for it, which is unique in the batch."""

    custom_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    params: BatchParams


class BatchRequest(ClosedBody):
    """Turns to post together. ``null`` counts as absent."""

    requests: Annotated[list[BatchItem], Field(min_length=1, max_length=MOST_REQUESTS)]
    metadata: Metadata | None = None


class ResultsQuery(ClosedQuery):
    """Where the results begin."""

    after: Annotated[Text, Field(max_length=64)] | None = Field(
        default=None, description="the id of a turn of the batch: only results of turns posted after it"
    )


def check_names(request: BatchRequest) -> None:
    """Refuse a batch in which two turns have the same ``custom_id``.

    Raises:
        Problem: 422 ``invalid_request``, naming each place that repeats one, up to ``MOST_PROBLEMS``.
    """
    seen: Counter[str] = Counter()
    twice: list[FieldProblem] = []
    for place, item in enumerate(request.requests):
        if seen[item.custom_id] and len(twice) < MOST_PROBLEMS:
            loc: list[str | int] = ["body", "requests", place, "custom_id"]
            twice.append(FieldProblem(loc=loc, msg=f"there is another {item.custom_id!r} before it"))
        seen[item.custom_id] += 1
    if twice:
        raise invalid(twice)
