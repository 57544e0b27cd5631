"""What the gate may answer about a read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ReadState(StrEnum):
    """What the gate knows of a read whose outcome it does not hold."""

    EXPIRED = "expired"
    CLOSED = "closed"
    GONE = "gone"
    UNADMITTED = "unadmitted"
    LOST = "lost"
    LIVE = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRead:
    """One read as ``settle`` found it: an accepted completion, or a state.

    Args:
        call_id: Which call.
        state: ``None`` if there is a completion.
        completion: What ``complete`` recorded, JSON.
        started_at: When the attempt was admitted, seconds since the epoch by the gate's clock.
        finished_at: When it completed, likewise.
        worker: The runner that was admitted.
        lease_s: For a live one, how long it may still be silent before it is lost, in seconds; says nothing of the read
            itself.
    """

    call_id: str
    state: ReadState | None
    completion: str | None = None
    started_at: float | None = None
    finished_at: float | None = None
    worker: str | None = None
    lease_s: float | None = field(default=None, compare=False)
