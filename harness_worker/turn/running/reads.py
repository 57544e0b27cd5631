"""Running a read. The gate is the arbiter: it decides whether the read starts, and whether its outcome is in time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from harness_worker.core.canonical import compact
from harness_worker.core.outcomes import ToolOutcome, to_record
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.writes import late
from harness_worker.errors import TransientError
from harness_worker.ports import Admission, Admitted, Clock, Gate, TurnStore
from harness_worker.turn.retries import Retries
from harness_worker.turn.running.aftermath import Aftermath
from harness_worker.turn.running.execution import Execution
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.locking import Withdrawn
from harness_worker.turn.tickets import Ticket

OVERRUN_WAIT_S: Final = 2.0
"""If a body ends without an outcome at most this long before the deadline, the read waits for the deadline to report
a timeout."""

UNSERVED_S: Final = 1.0
"""The time that a read gets whose tool is not served here: enough to report that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRunner:
    """Runs reads; keeps no state of any read.

    Args:
        gate: The arbiter of reads.
        store: The journal, which records a result that came too late.
        execution: Runs bodies.
        aftermath: Does what follows a call's end.
        patiently: Retries if the gate does not answer once a body may have run.
        clock: This process's monotonic time.
    """

    gate: Gate
    store: TurnStore
    execution: Execution
    aftermath: Aftermath
    patiently: Retries
    clock: Clock

    def run(self, job: Job) -> Canvas:
        """Serve the message of a read.

        Raises:
            TransientError: The gate did not say whether the read may start.
        """
        spec = self.execution.spec_of(job)
        cap_ms = int((UNSERVED_S if spec is None else spec.timeout_s) * 1_000)
        asked = self.clock.monotonic()
        admitted = self.gate.admit(job, cap_ms)
        if admitted.answer is Admission.DUPLICATE:
            return Canvas.STAYS
        if admitted.answer is Admission.OK:
            try:
                self._run_admitted(job, spec, admitted, asked)
            except Withdrawn:
                self._report_not_started(job)
        return Canvas.CONTINUES

    def _run_admitted(self, job: Job, spec: ToolSpec | None, admitted: Admitted, asked: float) -> None:
        self.execution.say_started(job)
        ticket = Ticket.from_json(admitted.ticket)
        is_outdated = ticket.tool != job.tool  # the call was planned again since the message was sent
        if is_outdated or self.execution.stood_still(asked):
            raise Withdrawn
        remaining_s = admitted.remaining_ms / 1_000
        until, over_at = asked + remaining_s, self.clock.monotonic() + remaining_s
        outcome = self.execution.outcome(spec, ticket, job, until=until, enter=partial(self._enter, job, until))
        if outcome is None:
            self._report_overrun(job, over_at)
        else:
            self._hand_in(job, ticket, outcome)

    def _enter(self, job: Job, until: float) -> float:
        """Ask the gate again after a wait; return until when the body may run."""
        asked = self.clock.monotonic()
        try:
            goes_on = self.gate.goes_on(job)
        except TransientError as error:
            raise Withdrawn from error
        if not goes_on or self.execution.stood_still(asked):
            raise Withdrawn
        return until

    def _report_not_started(self, job: Job) -> None:
        """Report an admitted read that did not start; without that, it would be waited for until its lease expires."""
        self.patiently.or_give_up(lambda: self.gate.lose(job), f"{job}: saying that it did not begin")

    def _report_overrun(self, job: Job, over_at: float) -> None:
        """Send a last heartbeat after the deadline, so that the gate records a timeout instead of a lost process."""
        left_s = over_at - self.clock.monotonic()
        if left_s <= OVERRUN_WAIT_S:
            self.clock.wait(max(0.0, left_s))
            self.patiently.or_give_up(lambda: self.gate.beat([job]), f"{job}: a last beat")

    def _hand_in(self, job: Job, ticket: Ticket, outcome: ToolOutcome) -> None:
        match self._complete(job, outcome):
            case True:
                self.aftermath.tell(ticket, outcome, attempt=job.attempt)
            case False:
                self.aftermath.count_late(job)
                self._note_late(job)
                self.aftermath.discard(job, ticket, outcome)
            case None:
                self.aftermath.log_lost(job)

    def _complete(self, job: Job, outcome: ToolOutcome) -> bool | None:
        """Whether the gate accepted the outcome as in time; ``None`` if it never answered."""
        completion = compact(to_record(outcome))
        return self.patiently.or_give_up(lambda: self.gate.complete(job, completion), f"{job}: its result")

    def _note_late(self, job: Job) -> None:
        noted = partial(late, call_id=job.call_id, attempt=job.attempt)
        self.patiently.or_give_up(
            lambda: self.store.transact(job.turn_id, noted), f"{job}: noting that its result came late"
        )
