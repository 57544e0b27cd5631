"""The turns as this process's last commits left them, so that a caller who goes on need not read its turn again.

That is only a guess: a decision made on it is committed only if the turn's row still has that version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from harness_worker.clock import monotonic
from harness_worker.core.decisions import Snapshot

FRESH_S: Final = 1.0
KEPT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A turn as it is now, as far as this process knows.

    Args:
        snapshot: The turn, with the database's time.
        version: The version of the turn's row.
        at: The monotonic time that corresponds to the database's.
        asked: The monotonic time just before the turn was last read from the database.
    """

    snapshot: Snapshot
    version: str
    at: float
    asked: float


class Recent:
    """The turns that commits left, for ``FRESH_S``; when there are more than ``KEPT``, the oldest is forgotten.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._left: dict[str, Seen] = {}

    def keep(self, seen: Seen) -> None:
        """Remember a turn that a commit left. Never raises, whatever other threads do: the commit has been made."""
        for oldest in list(self._left)[: max(0, len(self._left) - KEPT + 1)]:
            self._left.pop(oldest, None)
        self._left[seen.snapshot.turn.id] = seen

    def take(self, turn_id: str) -> Seen | None:
        """The turn as a commit left it, brought up to the present, and forget it; ``None`` if that is too old.

        This process's clock continues the database's time. The result lags by as long as the database's answer took,
        so it is never ahead of the times of later commits.
        """
        seen, now = self._left.pop(turn_id, None), self.clock()
        if seen is None or now - seen.asked > FRESH_S:
            return None
        snapshot = replace(seen.snapshot, now=seen.snapshot.now + now - seen.at)
        return replace(seen, snapshot=snapshot, at=now)
