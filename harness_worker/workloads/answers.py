"""Connects the harness's tools with a workload's state: the call that is served, and the answer for the model."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError, ToolTransientError, TransientError
from harness_worker.workloads.base import Observation, RecordedEffect
from harness_worker.workloads.state import WriteCall


def call_of(tool: str, arguments: Mapping[str, Any], ctx: RunContext) -> WriteCall:
    """The call that a tool serves in this process."""
    return WriteCall(
        turn_id=ctx.turn_id,
        call_id=ctx.call_id,
        idempotency_key=ctx.idempotency_key,
        attempt=ctx.attempt,
        worker=f"{socket.gethostname()}/{os.getpid()}",
        effect=RecordedEffect.of(tool, arguments),
    )


def answer(ask: Callable[[], Observation]) -> str:
    """The text that the model reads; if the database does not answer, the harness tries again.

    Raises:
        ToolError: The observation is an error.
        ToolTransientError: The database does not answer.
    """
    try:
        observation = ask()
    except TransientError as gone:
        raise ToolTransientError(str(gone)) from gone
    if observation.is_error:
        raise ToolError(observation.content)
    return observation.content
