"""Makes tau2's tools tools of the harness: the real callables, over state in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness_worker.core.run_context import RunContext
from harness_worker.workloads.answers import answer, call_of
from harness_worker.workloads.state import Overlay, WorkloadState, Written
from harness_worker.workloads.tau2.overlay import View
from harness_worker.workloads.tau2.source import Domain, respond

Tool = Callable[[dict[str, Any], RunContext], str]


def reading_tool(domain: Domain, state: WorkloadState, name: str) -> Tool:
    """A tool that changes nothing; it is called on a view of the turn's state."""

    def read(arguments: dict[str, Any], ctx: RunContext) -> str:
        return answer(lambda: respond(domain.over(_view(ctx.turn_id)), name, arguments))

    def _view(turn_id: str) -> View:
        return View(domain, state.overlay(turn_id), writable=False)

    return read


def writing_tool(domain: Domain, state: WorkloadState, name: str) -> Tool:
    """A tool that changes records; each call takes effect once, however often it is delivered or run."""

    def write(arguments: dict[str, Any], ctx: RunContext) -> str:
        return answer(lambda: state.once(call_of(name, arguments, ctx), lambda overlay: _do(overlay, arguments)))

    def _do(overlay: Overlay, arguments: Mapping[str, Any]) -> Written:
        view = View(domain, overlay, writable=True)
        observation = respond(domain.over(view), name, arguments)
        return Written(observation=observation, changed=view.changes())

    return write
