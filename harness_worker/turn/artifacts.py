"""Artifacts once they are stored: finding their texts, and removing those that have expired."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from harness_worker.core.run_context import RunContext
from harness_worker.errors import HarnessError, PermanentError, ToolTransientError, TransientError
from harness_worker.ports import Artifacts, BlobStore, Clock, ExpiredArtifact

log = logging.getLogger(__name__)

EVERY_S = 60.0
BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFetch:
    """Finds the texts of artifacts, each only for its own session.

    Args:
        artifacts: Knows the sessions of artifacts.
        blobs: Stores their bytes.
    """

    artifacts: Artifacts
    blobs: BlobStore

    def __call__(self, artifact_id: str, context: RunContext) -> str | None:
        """The whole text; ``None`` if the session has no such artifact, or no longer has it.

        Raises:
            ToolTransientError: The journal or the store did not answer.
        """
        try:
            url = self.artifacts.url_of(artifact_id, tenant=context.tenant, session_id=context.session_id)
            return None if url is None else self.blobs.get(url).decode()
        except TransientError as error:
            log.warning("artifact %s not read: %s", artifact_id, error)
            raise ToolTransientError("the artifact store does not answer; try again") from error
        except PermanentError as error:
            log.warning("artifact %s has no bytes: %s", artifact_id, error)
            return None


class ArtifactSweep:
    """Removes bytes first, then rows, so that what fails in between is found again. Two sweeps at once do no harm.

    Args:
        artifacts: Knows what has expired.
        blobs: Stores the bytes.
        clock: This process's monotonic time.
    """

    def __init__(self, artifacts: Artifacts, blobs: BlobStore, clock: Clock) -> None:
        self._artifacts = artifacts
        self._blobs = blobs
        self._clock = clock
        self._next_s = clock.monotonic() + EVERY_S
        self._thread: threading.Thread | None = None

    def __call__(self) -> None:
        """Sweep, if it is time, on a separate thread, so that a hanging blob store does not block the caller."""
        if self._clock.monotonic() < self._next_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_s = self._clock.monotonic() + EVERY_S
        self._thread = threading.Thread(target=self._sweep_or_log, name="artifact-sweep", daemon=True)
        self._thread.start()

    def sweep(self) -> int:
        """Remove expired artifacts and return how many were removed. One that cannot be does not hold up the others."""
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
            log.warning("%d of %d expired artifacts not removed: %s", len(stays), len(batch), last)
        gone = [each.id for each in batch if each.id not in stays]
        if gone:
            self._artifacts.forget(gone)
        return len(gone)

    def _sweep_or_log(self) -> None:
        try:
            self.sweep()
        except HarnessError as error:
            log.warning("could not look for expired artifacts: %s", error)

    def _refusal(self, url: str) -> HarnessError | None:
        """Delete the bytes; return why that failed if it may succeed another time."""
        try:
            self._blobs.delete(url)
        except PermanentError as error:  # another try would fail, too
            log.warning("artifact at %s given up, its bytes may be left over: %s", url, error)
        except HarnessError as error:
            return error
        return None
