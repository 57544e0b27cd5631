"""The deliveries that wait for a free place, in memory: until then the database is not asked about them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from api_gateway.webhooks.rules import DueDelivery, Lane, admitted

MOST_A_TENANT: Final = 2_000
"""The most deliveries of one tenant that are queued; further ones are dropped, and a later poll finds them again."""


class Backlog:
    """A queue of due deliveries for each lane."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, dict[str, None]] = {}
        self._tenants: Counter[str] = Counter()

    def add(self, found: Iterable[DueDelivery]) -> None:
        """Queue deliveries; those that are queued already keep their places."""
        for due in found:
            known = self._lanes.get(due.lane, {})
            if due.turn_id not in known and self._tenants[due.lane.tenant] < MOST_A_TENANT:
                self._lanes.setdefault(due.lane, {})[due.turn_id] = None
                self._tenants[due.lane.tenant] += 1

    def take(self, busy: Mapping[Lane, int]) -> list[str]:
        """Remove the deliveries that may start beside the requests under way, and return their turns' ids."""
        waiting = {lane: len(turn_ids) for lane, turn_ids in self._lanes.items()}
        return [self._pop(lane) for lane in admitted(waiting, busy)]

    def _pop(self, lane: Lane) -> str:
        turn_ids = self._lanes[lane]
        turn_id = next(iter(turn_ids))
        del turn_ids[turn_id]
        if not turn_ids:
            del self._lanes[lane]
        self._tenants -= Counter([lane.tenant])  # which also forgets tenants that have nothing left
        return turn_id
