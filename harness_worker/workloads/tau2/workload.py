"""A tau2 domain as a workload: its tasks, their plain replay, and the state that a turn leaves."""

from __future__ import annotations

from collections.abc import Callable

from harness_worker.core.registration.registry import Registry
from harness_worker.workloads.base import Observation, ObservedState, RecordedEffect, ReplayOutcome, WorkloadTask
from harness_worker.workloads.state import WorkloadState
from harness_worker.workloads.tau2.overlay import View
from harness_worker.workloads.tau2.source import Domain, load_tasks, respond


class Tau2Workload:
    """One domain, read from the package, with its turns' state in SQL.

    Args:
        domain: The domain.
        state: Stores what turns changed.
        make_registry: Makes the registry of its tools over that state.
    """

    categories = ()

    def __init__(self, domain: Domain, state: WorkloadState, make_registry: Callable[[], Registry]) -> None:
        self.name = f"tau2-{domain.name}"
        self.app = f"harness_worker.workloads.tau2.{domain.name}_app:registry"
        self._domain = domain
        self._make_registry = make_registry
        self._state = state

    def registry(self) -> Registry:
        """The domain's tools and its agent."""
        return self._make_registry()

    def tasks(self) -> tuple[WorkloadTask, ...]:
        """Every task of the domain's base set."""
        return load_tasks(self._domain)

    def replay(self, task: WorkloadTask) -> ReplayOutcome:
        """The task's calls in a fresh environment, by tau2's own code alone."""
        environment = self._domain.fresh()
        observations, effects = list[Observation](), list[RecordedEffect]()
        for call in task.calls:
            before = None if call.is_read else environment.tools.db.model_dump()
            observation = respond(environment, call.tool, call.arguments)
            observations.append(observation)
            if not call.is_read and (not observation.is_error or environment.tools.db.model_dump() != before):
                effects.append(RecordedEffect.of(call.tool, call.arguments))
        return ReplayOutcome(
            observations=tuple(observations), effects=tuple(effects), final_state=environment.get_db_hash()
        )

    def observed(self, task: WorkloadTask, turn_id: str) -> ObservedState:
        """The turn's journal, and tau2's own hash of the database as the turn left it."""
        del task
        view = View(self._domain, self._state.overlay(turn_id), writable=False)
        return ObservedState(
            journal=self._state.journal(turn_id),
            final_state=self._domain.over(view.materialised()).get_db_hash(),
        )
