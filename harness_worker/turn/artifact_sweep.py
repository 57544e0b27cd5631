"""Removing artifacts whose time is over: a few at a time, once a minute, beside the reconciler."""

from __future__ import annotations

import logging

from harness_worker.errors import HarnessError
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

    def __call__(self) -> None:
        """Sweep, if it is time.

        Raises:
            TransientError: The journal did not answer.
        """
        if self._clock.monotonic() < self._next_s:
            return
        self._next_s = self._clock.monotonic() + EVERY_S
        self.sweep()

    def sweep(self) -> int:
        """Remove one batch; returns how many artifacts went."""
        gone = [artifact_id for artifact_id, url in self._store.expired_artifacts(BATCH) if self._removed(url)]
        if gone:
            self._store.forget_artifacts(gone)
        return len(gone)

    def _removed(self, url: str) -> bool:
        try:
            self._blobs.delete(url)
        except HarnessError as error:
            log.warning("artifact at %s not removed: %s", url, error)
            return False
        return True
