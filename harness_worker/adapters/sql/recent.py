"""What this process's last commits left of their turns, so that who goes on from one need not read it again.

It is no more than a guess: what is decided on it is committed only if the turn's row is still of that version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from harness_worker.adapters.sql.optimistic import Read
from harness_worker.clock import monotonic
from harness_worker.core.afterwards import needs_beats

FRESH_S: Final = 1.0
KEPT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A turn as it stands, by what this process knows.

    Args:
        read: The turn, with the database's time.
        at: The monotonic time at which it was that time.
        asked: The monotonic time before the database was last asked for it.
    """

    read: Read
    at: float
    asked: float


class Recent:
    """What commits left, for ``FRESH_S``; of more than ``KEPT`` turns the oldest is forgotten.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._left: dict[str, Seen] = {}

    def keep(self, seen: Seen) -> None:
        """Remember what a commit left. Never raises, whatever other threads do meanwhile: the commit is made."""
        for oldest in list(self._left)[: max(0, len(self._left) - KEPT + 1)]:
            self._left.pop(oldest, None)
        self._left[seen.read.snapshot.turn.id] = seen

    def take(self, turn_id: str) -> Seen | None:
        """What a commit left of the turn, as it stands now, and forget it; ``None`` where that is too doubtful.

        The database's time is counted on by this process's clock. It lags by what the database's answer took, so it
        never overtakes the times of later commits.
        """
        seen, now = self._left.pop(turn_id, None), self.clock()
        if seen is None or now - seen.asked > FRESH_S:
            return None
        snapshot = replace(seen.read.snapshot, now=seen.read.snapshot.now + now - seen.at)
        if needs_beats(snapshot):
            return None
        return Seen(read=replace(seen.read, snapshot=snapshot), at=now, asked=seen.asked)
