"""Locks in this process's memory, for turns driven without Redis. They pass the same contract suite as Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeAlias

from harness_worker.ports import LockName, RunningCall

Holder: TypeAlias = tuple[str, str, str]


class MemoryLocks:
    """Implements ``ports.Locks``; safe to share between threads.

    Args:
        lease_ttl_s: A holder without a heartbeat for longer has lost its lock, in seconds.
        clock: Seconds since the epoch; the only clock.
    """

    def __init__(self, *, lease_ttl_s: float, clock: Callable[[], float] = time.time) -> None:
        self._ttl_s = lease_ttl_s
        self._clock = clock
        self._lock = Lock()
        self._held: dict[LockName, tuple[Holder, int]] = {}
        self._alive_until: dict[Holder, float] = {}
        self._last = 0

    def take(self, lock: LockName, run: RunningCall, keep_s: float) -> int | None:  # noqa: ARG002 - the port's signature
        """See ``ports.Locks.take``."""
        with self._lock:
            mine, held = _holder(run), self._held.get(lock)
            lives = held is not None and self._lives(held[0])
            if held is not None and lives and held[0] != mine:
                return None
            if held is None or not lives:
                self._last = max(self._last + 1, int(self._clock() * 1_000_000))
                held = (mine, self._last)
            fence = held[1]
            self._held[lock] = held
            self._alive_until[mine] = self._clock() + self._ttl_s
            return fence

    def free(self, lock: LockName, run: RunningCall) -> bool:
        """See ``ports.Locks.free``."""
        with self._lock:
            mine = _holder(run)
            lives, is_mine = self._lives(mine), self._held.get(lock, (None, 0))[0] == mine
            self._alive_until.pop(mine, None)
            if is_mine:
                del self._held[lock]
            return lives and is_mine

    def beat(self, runs: Sequence[RunningCall]) -> None:
        """See ``ports.Locks.beat``."""
        with self._lock:
            for holder in filter(self._lives, map(_holder, runs)):
                self._alive_until[holder] = self._clock() + self._ttl_s

    def lose(self, run: RunningCall) -> None:
        """See ``ports.Locks.lose``."""
        with self._lock:
            self._alive_until.pop(_holder(run), None)

    def _lives(self, holder: Holder) -> bool:
        return self._clock() < self._alive_until.get(holder, 0.0)


def _holder(run: RunningCall) -> Holder:
    return (run.turn_id, run.call_id, run.runner)
