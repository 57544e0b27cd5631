"""BFCL's multi-turn tasks as a workload: the tasks, their plain replay, and the state that a turn leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harness_worker.core.registration.registry import Registry
from harness_worker.errors import ArgumentsInvalid
from harness_worker.workloads.base import (
    Observation,
    ObservedState,
    RecordedCall,
    RecordedEffect,
    ReplayOutcome,
    WorkloadTask,
)
from harness_worker.workloads.bfcl.snapshot import freeze
from harness_worker.workloads.bfcl.source import CATEGORIES, Bfcl
from harness_worker.workloads.bfcl.tools import restored
from harness_worker.workloads.bfcl.world import digest, fresh, respond
from harness_worker.workloads.state import WorkloadState

NAME: Final = "bfcl-multi-turn"


class BfclWorkload:
    """The tasks of all categories, with their turns' state in SQL.

    Args:
        bfcl: The package.
        state: Stores what turns changed.
        make_registry: Makes the registry of the tools over that state.
    """

    name = NAME
    app = "harness_worker.workloads.bfcl.app:registry"
    categories = CATEGORIES

    def __init__(self, bfcl: Bfcl, state: WorkloadState, make_registry: Callable[[], Registry]) -> None:
        self._bfcl = bfcl
        self._state = state
        self._make_registry = make_registry
        self._agent = make_registry().agents[NAME]

    def registry(self) -> Registry:
        """The tools and the agent."""
        return self._make_registry()

    def tasks(self) -> tuple[WorkloadTask, ...]:
        """The tasks of all categories."""
        return self._bfcl.tasks

    def replay(self, task: WorkloadTask) -> ReplayOutcome:
        """The task's calls on fresh instances that are never frozen, by BFCL's own code; refused calls are not made."""
        scenario = self._bfcl.scenarios[task.id]
        instances = {name: fresh(self._bfcl, scenario, name) for name in scenario.involved}
        observations, effects = list[Observation](), list[RecordedEffect]()
        for call in task.calls:
            before = freeze(self._owner(call, instances))
            observations.append(self._refused(call) or self._made(call, instances))
            if freeze(self._owner(call, instances)) != before:
                effects.append(RecordedEffect.of(call.tool, call.arguments))
        return ReplayOutcome(observations=tuple(observations), effects=tuple(effects), final_state=digest(instances))

    def observed(self, task: WorkloadTask, turn_id: str) -> ObservedState:
        """The turn's journal, and the public attributes of its instances as they are in SQL."""
        scenario, overlay = self._bfcl.scenarios[task.id], self._state.overlay(turn_id)
        instances = {name: restored(self._bfcl, scenario, name, overlay) for name in scenario.involved}
        return ObservedState(journal=self._state.journal(turn_id), final_state=digest(instances))

    def _owner(self, call: RecordedCall, instances: Mapping[str, Any]) -> Any:  # noqa: ANN401 - BFCL has no types
        return instances[self._bfcl.functions[call.tool].owner]

    def _made(self, call: RecordedCall, instances: Mapping[str, Any]) -> Observation:
        return respond(self._owner(call, instances), call.tool, call.arguments)

    def _refused(self, call: RecordedCall) -> Observation | None:
        """The refusal of a call whose arguments do not fit the function's document; some recorded calls have such."""
        tool = self._agent.tool(call.tool)
        try:
            if tool is not None:
                tool.bind(dict(call.arguments))
        except ArgumentsInvalid as invalid:
            return Observation(content=f"denied: validation: {invalid}", is_error=True)
        return None
