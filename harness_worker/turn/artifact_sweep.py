"""Removing artifacts whose time is over: once a minute, beside the reconciler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Sequence

from harness_worker.errors import HarnessError, PermanentError
from harness_worker.ports import Artifacts, BlobStore, Clock, ExpiredArtifact

log = logging.getLogger(__name__)

EVERY_S = 60.0
BATCH = 100


class ArtifactSweep:
    """Removes bytes first, then rows: what fails between is found again. Sweeping twice at once harms nothing.

    Args:
        artifacts: Knows what has expired.
        blobs: Has the bytes.
        clock: This process's monotonic time.
    """

    def __init__(self, artifacts: Artifacts, blobs: BlobStore, clock: Clock) -> None:
        self._artifacts = artifacts
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
        """Remove all whose time is over; returns how many went. What stays keeps no other from being looked at."""
        return sum(map(self._sweep_batch, self._batches()))

    def _batches(self) -> Generator[list[ExpiredArtifact]]:
        batch = self._artifacts.expired(BATCH)
        while batch:
            yield batch
            batch = self._artifacts.expired(BATCH, after=batch[-1])

    def _sweep_batch(self, batch: Sequence[ExpiredArtifact]) -> int:
        stays = {each.id: error for each in batch if (error := self._refusal(each.url)) is not None}
        if stays:
            last = next(reversed(stays.values()))
            log.warning("%d of %d artifacts whose time is over not removed: %s", len(stays), len(batch), last)
        gone = [each.id for each in batch if each.id not in stays]
        if gone:
            self._artifacts.forget(gone)
        return len(gone)

    def _sweep_or_say(self) -> None:
        try:
            self.sweep()
        except HarnessError as error:
            log.warning("could not look for artifacts whose time is over: %s", error)

    def _refusal(self, url: str) -> HarnessError | None:
        """Why the bytes are still there, but may be removed another time."""
        try:
            self._blobs.delete(url)
        except PermanentError as error:  # nobody would ever remove it
            log.warning("artifact at %s given up, its bytes may stay: %s", url, error)
        except HarnessError as error:
            return error
        return None
