"""Locks on Redis: one hash for each lock, and one key for each holder, which heartbeats keep alive."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from harness_worker.adapters.redis import contracts
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.ports import LockName, RunningCall

MARGIN_S = 3_600.0
"""How much longer than its call a lock's fencing number is remembered."""


class RedisLocks:
    """Implements ``ports.Locks``. Every method raises ``TransientError`` if Redis does not answer.

    Args:
        client: The Redis that holds the locks; it may lose them.
        lease_ttl_s: A holder without a heartbeat for longer has lost its lock, in seconds.
    """

    def __init__(self, client: RedisClient, *, lease_ttl_s: float) -> None:
        self._client = client
        self._ttl_ms = int(lease_ttl_s * 1000)

    def take(self, lock: LockName, run: RunningCall, keep_s: float) -> int | None:
        """See ``ports.Locks.take``."""
        keep_ms = int((keep_s + MARGIN_S) * 1000)
        return self._client.run(contracts.take_lock(_key(lock), _holder(run), self._ttl_ms, keep_ms)) or None

    def free(self, lock: LockName, run: RunningCall) -> bool:
        """See ``ports.Locks.free``."""
        return bool(self._client.run(contracts.free_lock(_key(lock), _holder(run))))

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """See ``ports.Locks.beat``; one round trip. A holder that is gone is not revived."""
        self._client.batch([("PEXPIRE", _holder(run), self._ttl_ms) for run in runs])

    def lose(self, run: RunningCall) -> None:
        """See ``ports.Locks.lose``."""
        self._client.command("DEL", _holder(run))


def _key(lock: LockName) -> str:
    return f"harness:{{locks}}:{quote(lock.tenant, safe='')}:{lock.name}"


def _holder(run: RunningCall) -> str:
    return f"harness:{{locks}}/{run.runner}/{run.turn_id}/{run.call_id}"
