"""Makes BFCL's methods tools of the harness: each call runs on an instance restored from SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError
from harness_worker.workloads.answers import answer, call_of
from harness_worker.workloads.base import task_of
from harness_worker.workloads.bfcl.snapshot import freeze, thaw
from harness_worker.workloads.bfcl.source import Bfcl, Function, Scenario
from harness_worker.workloads.bfcl.world import fresh, respond
from harness_worker.workloads.state import Overlay, RecordKey, WorkloadState, Written

Tool = Callable[[dict[str, Any], RunContext], str]

INSTANCES: Final = "instances"
"""The collection of a turn's snapshots, one for each domain class that it has changed."""


def tool_of(bfcl: Bfcl, state: WorkloadState, function: Function) -> Tool:
    """A tool whose effect is not declared; each call takes effect once, however often it is delivered or run."""

    def call(arguments: dict[str, Any], ctx: RunContext) -> str:
        scenario = _scenario(bfcl, function, ctx.session_id)
        return answer(
            lambda: state.once(
                call_of(function.name, arguments, ctx), lambda overlay: _do(scenario, overlay, arguments)
            )
        )

    def _do(scenario: Scenario, overlay: Overlay, arguments: Mapping[str, Any]) -> Written:
        instance = restored(bfcl, scenario, function.owner, overlay)
        before = freeze(instance)
        observation = respond(instance, function.name, arguments)
        after = freeze(instance)
        changed = {_key(function.owner): after} if after != before else {}
        return Written(observation=observation, changed=changed, is_declared=False)

    return call


def restored(bfcl: Bfcl, scenario: Scenario, name: str, overlay: Overlay) -> Any:  # noqa: ANN401 - BFCL has no types
    """The instance of a domain class as the turn has left it so far."""
    text = overlay.get(_key(name))
    return fresh(bfcl, scenario, name) if text is None else thaw(bfcl.classes[name], text)


def _key(name: str) -> RecordKey:
    return INSTANCES, name


def _scenario(bfcl: Bfcl, function: Function, session_id: str) -> Scenario:
    scenario = bfcl.scenarios.get(task_of(session_id))
    if scenario is None:
        raise ToolError(
            f"the session {session_id!r} names no task; start turns with a session_id like multi_turn_base_0.1",
            retryable=False,
        )
    if function.owner not in scenario.involved:
        raise ToolError(f"{function.owner} is no part of task {task_of(session_id)}", retryable=False)
    return scenario
