"""Running the body of a read or a write: under its lock, within its time, and not after this process was stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harness_worker.core.doubt import lock_missed, too_late
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.errors import TransientError
from harness_worker.ports import Clock, Gate, LockName
from harness_worker.turn.deltas import Hint
from harness_worker.turn.running.job import Job
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.turn.running.tool_body import ToolBody
from harness_worker.turn.tickets import Ticket
from harness_worker.wire import HintType

log = logging.getLogger(__name__)

STALE_START_S: Final = 2.0
"""If more than this passes between asking and starting, this process was stopped in between, and must not start."""

MISS_TOLD_S: Final = 0.5
MISS_TOLD_SHARE: Final = 0.1
"""How long before its deadline, in seconds, and at most for which share of its time, a read gives up waiting for its
lock, so that the gate still accepts the outcome ``lock_missed``."""

TOOL_STARTED: Final[HintType] = "tool.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Runs the bodies of calls; keeps no state of any call.

    Args:
        tools: The tools that this process serves, by name.
        own: The harness's own, of which an application's tools may have the names; reads, by name.
        agents: The agents, by name: they say which of two tools of one name is meant.
        body: Executes a call.
        keeper: Takes the locks that calls need.
        gate: Says whether a body may go on.
        hint: Shows watchers that a call has started.
        clock: This process's monotonic time.
    """

    tools: Mapping[str, ToolSpec]
    own: Mapping[str, ToolSpec]
    agents: Mapping[str, AgentSpec]
    body: ToolBody
    keeper: LockKeeper
    gate: Gate
    hint: Hint
    clock: Clock

    def spec_of(self, job: Job) -> ToolSpec | None:
        """The job's tool; ``None`` if it is not served here, or is a read here and not in the job, or the reverse."""
        named = (self.tools.get(job.tool), self.own.get(job.tool))
        return next((spec for spec in named if spec is not None and spec.is_read == job.is_read), None)

    def say_started(self, job: Job) -> None:
        """Tell watchers, before the last look at the clock: a hanging Redis must not let a body start too late."""
        self.hint(job.turn_id, TOOL_STARTED, {"call_id": job.call_id, "tool": job.tool, "attempt": job.attempt})

    def stood_still(self, asked: float) -> bool:
        """Whether this process was stopped since ``asked``, when it asked whether a body may start."""
        return self.clock.monotonic() - asked > STALE_START_S

    def gate_lets(self, job: Job) -> bool:
        """Whether the gate lets a write start or a body go on; a gate that is gone or silent forbids nothing."""
        try:
            return self.gate.admits_write(job)
        except TransientError as error:
            log.warning("gate did not answer for %s, going on: %s", job, error)
            return True

    def outcome(
        self, spec: ToolSpec | None, ticket: Ticket, job: Job, *, until: float, enter: Callable[[], float]
    ) -> ToolOutcome | None:
        """Run the body, holding its lock if it has one; ``None`` if its time ended first or it was stopped.

        Args:
            spec: The tool; ``None`` if it is not served here, which is then the outcome.
            ticket: The call.
            job: The call's message.
            until: When the call's time is over, by this process's clock.
            enter: Called after the wait for a lock; returns until when the body may run.

        Raises:
            Withdrawn: The body was not started, and this process may no longer start it.
        """
        if spec is None:
            details = f"{ticket.tool} is not served by the worker that was asked to run it"
            reason = DenialReason.VALIDATION
            return ToolDenied(call_id=ticket.call_id, tool_name=ticket.tool, reason=reason, details=details)
        spec = self._meant(spec, ticket)
        if spec.lock is None:
            return self._run_body(spec, ticket, job, until, None)
        name = spec.lock(dict(ticket.arguments))
        if name is None:
            return self._run_body(spec, ticket, job, enter(), None)
        lock, left_s = LockName(tenant=ticket.tenant, name=name), until - self.clock.monotonic()
        wait_s = left_s - min(MISS_TOLD_S, left_s * MISS_TOLD_SHARE) if spec.is_read else left_s
        with self.keeper.holding(lock, job, remaining_s=wait_s, is_revoked=self._revoked(job)) as fence:
            if fence is not None:
                return self._run_body(spec, ticket, job, enter(), fence)
        return lock_missed(ticket.call_id, ticket.tool, is_read=spec.is_read, lock=f"the lock {name}")

    def _meant(self, spec: ToolSpec, ticket: Ticket) -> ToolSpec:
        """The tool that the call's agent has: an application's read, or the harness's own of the same name."""
        agent, ours = self.agents.get(ticket.agent), self.own.get(ticket.tool)
        if ours is None or agent is None or not spec.is_read:
            return spec
        return spec if agent.tool(spec.name) is spec else ours

    def _run_body(
        self, spec: ToolSpec, ticket: Ticket, job: Job, until: float, fence: int | None
    ) -> ToolOutcome | None:
        remaining_s = until - self.clock.monotonic()
        if remaining_s <= 0:
            return None if spec.is_read else too_late(ticket.call_id, ticket.tool)
        return self.body.run(
            spec,
            ticket,
            attempt=job.attempt,
            remaining_s=remaining_s,
            is_revoked=self._revoked(job),
            fence=fence,
        )

    def _revoked(self, job: Job) -> Callable[[], bool]:
        return lambda: not self.gate_lets(job)
