"""Removing artifacts whose time is over: a few at a time, once a minute, beside the reconciler."""

from __future__ import annotations

import logging
import threading

from harness_worker.errors import HarnessError, PermanentError
from harness_worker.ports import BlobStore, Clock, TurnStore

log = logging.getLogger(__name__)

EVERY_S = 60.0
BATCH = 100


class ArtifactSweep:
    """Removes bytes first, then rows: what fails between is found again. Sweeping twice at once harms nothing.

    Args:
        store: Knows what has expired.
        blobs: Has the bytes.
        clock: This process's monotonic time.
    """

    def __init__(self, store: TurnStore, blobs: BlobStore, clock: Clock) -> None:
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._next_s = clock.monotonic() + EVERY_S
        self._thread: threading.Thread | None = None

    def __call__(self) -> None:
        """Sweep, if it is time, on a thread of its own: a blob store that hangs must not keep anybody waiting."""
        if self._clock.monotonic() < self._next_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_s = self._clock.monotonic() + EVERY_S
        self._thread = threading.Thread(target=self._sweep_or_say, name="artifact-sweep", daemon=True)
        self._thread.start()

    def sweep(self) -> int:
        """Remove one batch; returns how many artifacts went."""
        gone = [artifact_id for artifact_id, url in self._store.expired_artifacts(BATCH) if self._removed(url)]
        if gone:
            self._store.forget_artifacts(gone)
        return len(gone)

    def _sweep_or_say(self) -> None:
        try:
            self.sweep()
        except HarnessError as error:
            log.warning("could not look for artifacts whose time is over: %s", error)

    def _removed(self, url: str) -> bool:
        try:
            self._blobs.delete(url)
        except PermanentError as error:  # it would be the oldest for ever, and keep the others from being looked at
            log.warning("artifact at %s given up, its bytes may stay: %s", url, error)
        except HarnessError as error:
            log.warning("artifact at %s not removed: %s", url, error)
            return False
        return True
