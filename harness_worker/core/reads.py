"""The gate's answers about a read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReadState(StrEnum):
    """What the gate knows about a read for which it holds no completion."""

    EXPIRED = "expired"
    CLOSED = "closed"
    GONE = "gone"
    UNADMITTED = "unadmitted"
    LOST = "lost"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRead:
    """One read as ``settle`` found it: with an accepted completion, or in a state.

    Args:
        call_id: The call.
        state: ``None`` if there is a completion.
        completion: What ``complete`` recorded, as JSON.
        started_at: When the attempt was admitted, in seconds since the epoch by the gate's clock.
        finished_at: When it completed, likewise.
        worker: The runner that was admitted.
        lease_s: For a live read, how much longer it may stay silent before it counts as lost, in seconds.
    """

    call_id: str
    state: ReadState | None
    completion: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    worker: str | None = None
    lease_s: float | None = None
