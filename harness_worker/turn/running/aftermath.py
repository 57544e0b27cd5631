"""What follows a call's end: hooks are told an accepted result; a late one is counted, and its artifact removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness_worker.core.outcomes import ToolArtifactReference, ToolDenied, ToolOutcome
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.ports import Artifacts
from harness_worker.turn.hooking import HookCaller, tell_used
from harness_worker.turn.retries import Retries
from harness_worker.turn.running.job import Job
from harness_worker.turn.tickets import Ticket

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """Does what follows the end of a call, once its arbiter has answered or has failed to.

    Args:
        agents: The agents whose hooks are called, by name.
        hooks: Calls the hooks.
        artifacts: Knows which artifacts the journal names.
        remove: Removes the bytes of an artifact that the journal does not name; never raises.
        on_late: Called for each result that came too late.
        patiently: Retries while the journal does not answer.
    """

    agents: Mapping[str, AgentSpec]
    hooks: HookCaller
    artifacts: Artifacts
    remove: Callable[[ToolArtifactReference], None]
    on_late: Callable[[], None]
    patiently: Retries

    def tell(self, ticket: Ticket, outcome: ToolOutcome, *, attempt: int) -> None:
        """Call the post hooks with an accepted outcome; not for a call that never ran."""
        agent = self.agents.get(ticket.agent)
        if agent is not None and agent.hooks and not isinstance(outcome, ToolDenied):
            tell_used(self.hooks, agent.hooks, ticket, outcome, attempt=attempt)

    def count_late(self, job: Job) -> None:
        """Count and log a result that came too late."""
        self.on_late()
        log.warning("late result of %s (call %s, turn %s) dropped", job.tool, job.call_id, job.turn_id)

    def discard(self, job: Job, ticket: Ticket, outcome: ToolOutcome | None) -> None:
        """Remove the artifact of an outcome that came too late, unless the journal names it after all."""
        if not isinstance(outcome, ToolArtifactReference):
            return

        def remove_unless_named() -> None:
            if self.artifacts.url_of(outcome.artifact_id, tenant=ticket.tenant, session_id=ticket.session_id) is None:
                self.remove(outcome)

        self.patiently.or_give_up(remove_unless_named, f"{job}: removing its artifact, if no call refers to it")

    def log_lost(self, job: Job) -> None:
        """Log that the arbiter never answered, so that nobody knows whether the result came in time."""
        log.warning("result of %s (call %s, turn %s) is lost", job.tool, job.call_id, job.turn_id)
