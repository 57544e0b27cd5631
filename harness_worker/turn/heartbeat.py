"""Heartbeats of this process's visits, which also learn whether to give up, and of its running calls."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from harness_worker.core.visits import Visit
from harness_worker.errors import SYSTEM_ERRORS, HarnessError
from harness_worker.ports import HeldTurn, TurnStore
from harness_worker.threads.rounds import Rounds

log = logging.getLogger(__name__)

AGAIN_S: Final = 0.1
"""The pause after a failed heartbeat of calls, in seconds, doubled each time: leases go on to expire, and forks need a
gap between heartbeats."""


class VisitHeartbeat(Rounds):
    """Prolongs the leases of all visits under way at once, from one thread.

    This also reveals a cancel whose message was lost, and tells a visit that no longer holds its turn to give up.

    Args:
        store: The journal, which has the leases.
        every_s: Seconds between two heartbeats.
        ttl_s: How long a heartbeat prolongs a lease, in seconds.
    """

    def __init__(self, store: TurnStore, *, every_s: float, ttl_s: float) -> None:
        super().__init__("visit-heartbeat", every_s)
        self._store = store
        self._ttl_s = ttl_s
        self._held: dict[str, tuple[Visit, threading.Event]] = {}
        """The visits under way, by owner. Its operations are atomic; a lock might stay locked after an error."""

    @contextmanager
    def holding(self, visit: Visit) -> Generator[threading.Event]:
        """Send heartbeats for ``visit`` within the context; yields an event, set when the visit must give up."""
        stop = threading.Event()
        try:
            self._held[visit.owner] = (visit, stop)
            yield stop
        finally:
            self._held.pop(visit.owner, None)

    def stop_turn(self, turn_id: str) -> None:
        """Tell this process's visits of a turn to give up whatever they are waiting for."""
        for visit, stop in self._held.copy().values():
            if visit.turn.id == turn_id:
                stop.set()

    def _round(self) -> None:
        held = self._held.copy().values()
        visits = {HeldTurn(visit.turn.id, visit.owner, visit.turn.fence): stop for visit, stop in held}
        try:
            for given_up in self._store.beat_turns(tuple(visits), self._ttl_s):
                visits[given_up].set()
        except HarnessError as error:
            log.warning("heartbeats of %d turns not written: %s", len(visits), error)


class CallHeartbeat(Rounds):
    """Prolongs what the calls under way hold, from its own thread, so that nothing the main thread waits for delays it.

    It is in a process that forks, and a child forked in the middle of a round would inherit locks that nobody ever
    releases. So forks wait for a round under way, and rounds for forks.

    Args:
        what: What is prolonged, for the log.
        beat: Sends one heartbeat.
        every_s: Seconds between two heartbeats.
    """

    def __init__(self, what: str, beat: Callable[[], None], *, every_s: float) -> None:
        super().__init__(f"heartbeat of {what}", every_s)
        self._what = what
        self._beat = beat
        self._under_way = threading.RLock()  # which none but its holder can release

    def start(self) -> None:
        """Start the thread; the first heartbeat comes after one interval."""
        lock = self._under_way
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
        super().start()

    def _round(self) -> None:
        pause_s = AGAIN_S
        try:
            while not self._is_sent() and not self._stop.wait(pause_s):
                pause_s = min(2 * pause_s, self._every_s)
        except BaseException:
            with suppress(RuntimeError):  # it is not held, unless the error came just before its release
                self._under_way.release()
            raise

    def _is_sent(self) -> bool:
        with self._under_way:
            try:
                self._beat()
            except (HarnessError, *SYSTEM_ERRORS) as error:
                log.warning("heartbeat of %s not sent: %r", self._what, error)
                return False
        return True
