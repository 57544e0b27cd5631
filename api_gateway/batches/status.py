"""The status of a batch, derived from its turns' rows alone, so that it cannot differ from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api_gateway.batches.answers import Batch, BatchCounts, BatchStatus
from api_gateway.database import AnyRow
from harness_worker.wire import rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """The state of a batch's turns.

    Args:
        numbers: How many turns are in each status.
        goes_on: Whether any of them has not ended and was not asked to stop.
        last_end: When the last of them ended, seconds since the epoch.
    """

    numbers: Mapping[str, int]
    goes_on: bool = False
    last_end: float | None = None


def state_of(rows: Iterable[AnyRow]) -> BatchState:
    """The state of one batch, from rows of (status, number, going_on, last_end), one for each status."""
    found = list(rows)
    ends = [row.last_end for row in found if row.last_end is not None]
    return BatchState(
        numbers={row.status: row.number for row in found},
        goes_on=any(row.going_on for row in found),
        last_end=max(ends, default=None),
    )


def batch_of(row: AnyRow, state: BatchState) -> Batch:
    """The batch of a row of ``batches`` and the state of its turns."""
    counts = BatchCounts.model_validate(state.numbers)
    status: BatchStatus = "ended"
    if counts.unfinished:
        status = "in_progress" if state.goes_on else "canceling"
    return Batch(
        id=row.id,
        status=status,
        total=row.total,
        counts=counts,
        metadata=row.metadata,
        created_at=rfc3339(row.created_at) or "",
        ended_at=None if counts.unfinished else rfc3339(state.last_end),
        results_url=f"/v1/batches/{row.id}/results",
    )
