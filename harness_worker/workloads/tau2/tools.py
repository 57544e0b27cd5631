"""tau2's tools as the harness' tools: the real callables, over state in SQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError, ToolTransientError, TransientError
from harness_worker.workloads.base import Effect, Observation
from harness_worker.workloads.state import Overlay, WorkloadState, WriteCall, Written
from harness_worker.workloads.tau2.overlay import View
from harness_worker.workloads.tau2.source import Domain, respond

Tool = Callable[[dict[str, Any], RunContext], str]


def reading_tool(domain: Domain, state: WorkloadState, name: str) -> Tool:
    """A tool that changes nothing: the turn's view, one call."""

    def read(arguments: dict[str, Any], ctx: RunContext) -> str:
        return _answer(lambda: _respond(domain, View(domain, state.overlay(ctx.turn_id), writable=False), arguments))

    def _respond(domain: Domain, view: View, arguments: Mapping[str, Any]) -> Observation:
        return respond(domain.over(view), name, arguments)

    return read


def writing_tool(domain: Domain, state: WorkloadState, name: str) -> Tool:
    """A tool that changes records: done once a call, whatever is delivered or run again."""

    def write(arguments: dict[str, Any], ctx: RunContext) -> str:
        return _answer(lambda: state.once(_write_call(name, arguments, ctx), lambda overlay: _do(overlay, arguments)))

    def _do(overlay: Overlay, arguments: Mapping[str, Any]) -> Written:
        view = View(domain, overlay, writable=True)
        observation = respond(domain.over(view), name, arguments)
        return Written(observation=observation, changed=view.changes())

    return write


def _write_call(name: str, arguments: Mapping[str, Any], ctx: RunContext) -> WriteCall:
    return WriteCall(
        turn_id=ctx.turn_id,
        call_id=ctx.call_id,
        idempotency_key=ctx.idempotency_key,
        attempt=ctx.attempt,
        worker=f"{socket.gethostname()}/{os.getpid()}",
        effect=Effect.of(name, arguments),
    )


def _answer(ask: Callable[[], Observation]) -> str:
    try:
        observation = ask()
    except TransientError as gone:
        raise ToolTransientError(str(gone)) from gone
    if observation.is_error:
        raise ToolError(observation.content)
    return observation.content
