"""The model client used for Claude if no API key is set: it only says what to set."""

from __future__ import annotations

from typing import NoReturn

from harness_worker.errors import ModelError
from harness_worker.ports import ModelRequest


class MissingKey:
    """Implements ``ports.ModelClient`` by saying what to set; needs nothing of the SDK."""

    def complete(self, request: ModelRequest) -> NoReturn:
        """Refuse.

        Raises:
            ModelError: Always; names the model and the variable.
        """
        raise ModelError(
            f"the model {request.model!r} is asked over Anthropic's API, which needs a key: set ANTHROPIC_API_KEY "
            "for the coordinator workers (or give the agent a 'scripted:FILE' model)"
        )
