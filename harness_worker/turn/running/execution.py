"""Running a call's body, a read's as a write's: under its lock, within its time, and not after standing still."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from harness_worker.core.doubt import lock_missed, too_late
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.registration.tools import ToolSpec
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
"""More than this between asking and starting means this process was stopped in between: do not start."""

MISS_TOLD_S: Final = 0.5
MISS_TOLD_SHARE: Final = 0.1
"""How long before its deadline (and at most which share of its time) a read stops waiting for its lock, so that the
gate still accepts the outcome ``lock_missed``."""

TOOL_STARTED: Final[HintType] = "tool.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Runs the bodies of calls; holds nothing of any of them.

    Args:
        tools: What this process serves, by name.
        body: Executes a call.
        keeper: Takes the locks that calls ask for.
        gate: Says whether a body may go on.
        hint: Shows to those who watch that a call was taken on.
        clock: This process's monotonic time.
    """

    tools: Mapping[str, ToolSpec]
    body: ToolBody
    keeper: LockKeeper
    gate: Gate
    hint: Hint
    clock: Clock

    def spec_of(self, job: Job) -> ToolSpec | None:
        """Its tool; none if another version made a write of a read, or the reverse, for they are run in other ways."""
        spec = self.tools.get(job.tool)
        return spec if spec is not None and spec.is_read == job.is_read else None

    def say_started(self, job: Job) -> None:
        """Before the last look at the clock: a Redis that hangs here must not let a body begin too late."""
        self.hint(job.turn_id, TOOL_STARTED, {"call_id": job.call_id, "tool": job.tool, "attempt": job.attempt})

    def stood_still(self, asked: float) -> bool:
        """Whether this process was stopped since it asked, at that time, whether a body may begin."""
        return self.clock.monotonic() - asked > STALE_START_S

    def gate_lets(self, job: Job) -> bool:
        """Whether the gate lets a write start, or a body go on; a gate that is gone or silent forbids nothing."""
        try:
            return self.gate.admits_write(job.turn_id, job.call_id, job.attempt)
        except TransientError as error:
            log.warning("gate did not answer for %s, going on: %s", job, error)
            return True

    def outcome(
        self, spec: ToolSpec | None, ticket: Ticket, job: Job, *, until: float, enter: Callable[[], float]
    ) -> ToolOutcome | None:
        """Run the body, holding its lock if it has one; ``None`` if its time ended first, or it was stopped.

        Args:
            spec: The tool; ``None`` if it is not served here, which is the outcome then.
            ticket: The call.
            job: Its message.
            until: When its time is over, by this process's clock.
            enter: Asked after the wait for a lock, whoever got it; says until when the body may run.

        Raises:
            Withdrawn: The body was not entered, and is no longer this process's to enter.
        """
        if spec is None:
            details = f"{ticket.tool} is not served by the worker that was asked to run it"
            reason = DenialReason.VALIDATION
            return ToolDenied(call_id=ticket.call_id, tool_name=ticket.tool, reason=reason, details=details)
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
