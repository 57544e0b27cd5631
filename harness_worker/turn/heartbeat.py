"""Saying "still alive": for the visits of this process, hearing whether they are to give up, and for running calls."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from harness_worker.core.visits import Visit
from harness_worker.errors import HarnessError
from harness_worker.ports import HeldTurn, TurnStore
from harness_worker.threads.rounds import Rounds

log = logging.getLogger(__name__)

AGAIN_S: Final = 0.1
"""The pause after a heartbeat of calls that failed; doubled each time: leases run on, and forks go between."""


class VisitHeartbeat(Rounds):
    """Prolongs the leases of the visits under way, from one thread and all at once.

    A cancel whose message was lost is heard by it, and so is a visit told that holds its turn no longer.

    Args:
        store: Where the leases are.
        every_s: Seconds between two beats.
        ttl_s: Seconds that a beat is good for.
    """

    def __init__(self, store: TurnStore, *, every_s: float, ttl_s: float) -> None:
        super().__init__("visit-heartbeat", every_s)
        self._store = store
        self._ttl_s = ttl_s
        self._held: dict[str, tuple[Visit, threading.Event]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, visit: Visit) -> Generator[threading.Event]:
        """Beat for ``visit`` within the context; yields what :meth:`stop_turn` sets, or a beat."""
        told = threading.Event()
        with self._lock:
            self._held[visit.owner] = (visit, told)
        try:
            yield told
        finally:
            with self._lock:
                self._held.pop(visit.owner, None)

    def stop_turn(self, turn_id: str) -> None:
        """Tell this process's visits of a turn to give up what they wait for."""
        with self._lock:
            held = tuple(self._held.values())
        for visit, told in held:
            if visit.turn.id == turn_id:
                told.set()

    def _round(self) -> None:
        with self._lock:
            held = tuple(self._held.values())
        visits = {HeldTurn(visit.turn.id, visit.owner, visit.turn.fence): told for visit, told in held}
        try:
            for given_up in self._store.beat_turns(tuple(visits), self._ttl_s):
                visits[given_up].set()
        except HarnessError as error:
            log.warning("heartbeats of %d turns not written: %s", len(visits), error)


class CallHeartbeat(Rounds):
    """Prolongs what the calls under way hold, from one thread: nothing the main thread waits for keeps it from that.

    It lives in a process that forks, and a child that is forked in the midst of a round would find locks shut that
    nobody opens any more. So forks wait for the round under way, and rounds for forks.

    Args:
        what: What is prolonged, for the log.
        beat: Prolongs it once.
        every_s: Seconds between two beats.
    """

    def __init__(self, what: str, beat: Callable[[], None], *, every_s: float) -> None:
        super().__init__(f"heartbeat of {what}", every_s)
        self._what = what
        self._beat = beat
        self._under_way = threading.Lock()

    def start(self) -> None:
        """Begin; the first beat comes after the time between two."""
        lock = self._under_way
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
        super().start()

    def _round(self) -> None:
        pause_s = AGAIN_S
        while not self._is_sent() and not self._stop.wait(pause_s):
            pause_s = min(2 * pause_s, self._every_s)

    def _is_sent(self) -> bool:
        with self._under_way:
            try:
                self._beat()
            except HarnessError as error:
                log.warning("heartbeat of %s not sent: %s", self._what, error)
                return False
        return True
