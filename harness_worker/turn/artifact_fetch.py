"""Finding an artifact's text for the tool that reads artifacts."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from harness_worker.core.run_context import RunContext
from harness_worker.errors import PermanentError, ToolTransientError, TransientError
from harness_worker.ports import Artifacts, BlobStore

log = logging.getLogger(__name__)


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
