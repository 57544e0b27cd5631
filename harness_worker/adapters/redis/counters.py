"""Counters for what cannot be counted in a transaction, because it happens after the end of what it belongs to."""

from __future__ import annotations

import logging
from collections import Counter, deque

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.errors import TransientError
from harness_worker.wire import COUNTERS

KEPT_S = 30 * 86_400

log = logging.getLogger(__name__)


class Tally:
    """Counts without waiting for Redis, for code that holds a transaction or a stream open; thread-safe.

    Args:
        client: The Redis of the fleet's counters.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._counted: deque[str] = deque()

    def add(self, name: str) -> None:
        """Count one."""
        self._counted.append(name)

    def flush(self) -> None:
        """Add what was counted since the last call to the fleet's counters. Never raises."""
        counted = Counter(self._counted.popleft() for _ in range(len(self._counted)))
        for name, number in counted.items():
            count(self._client, name, number)


def count(client: RedisClient, name: str, number: int = 1) -> None:
    """Add to the fleet's counter ``name``. Never raises; what could not be counted is logged."""
    try:
        client.batch([("HINCRBY", COUNTERS, name, number), ("EXPIRE", COUNTERS, KEPT_S)])
    except TransientError as why:
        log.warning("%s not counted: %s", name, why)
