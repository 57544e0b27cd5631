"""Running a read. The gate is the arbiter: it says whether the read starts, and whether its outcome came in time."""

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
from harness_worker.turn.patience import Patience
from harness_worker.turn.running.aftermath import Aftermath
from harness_worker.turn.running.execution import Execution
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.locking import Withdrawn
from harness_worker.turn.tickets import Ticket

OVERRUN_WAIT_S: Final = 2.0
"""A read whose body ended no longer than this before its deadline, without an outcome, waits for it to say so."""

UNSERVED_S: Final = 1.0
"""The time of a read whose tool is not served here: enough to say that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRunner:
    """Runs reads; holds nothing of any of them.

    Args:
        gate: Their arbiter.
        store: The journal, which notes a result that came too late.
        execution: Runs bodies.
        aftermath: Does what follows.
        patiently: Asks the gate again once a body may have run.
        clock: This process's monotonic time.
    """

    gate: Gate
    store: TurnStore
    execution: Execution
    aftermath: Aftermath
    patiently: Patience
    clock: Clock

    def run(self, job: Job) -> Canvas:
        """Serve the message of a read.

        Raises:
            TransientError: The gate did not say whether it may start.
        """
        spec = self.execution.spec_of(job)
        cap_ms = int((UNSERVED_S if spec is None else spec.timeout_s) * 1_000)
        asked = self.clock.monotonic()
        admitted = self.gate.admit(job.turn_id, job.call_id, job.attempt, cap_ms, job.runner)
        if admitted.answer is Admission.DUPLICATE:
            return Canvas.STAYS
        if admitted.answer is Admission.OK:
            try:
                self._run_admitted(job, spec, admitted, asked)
            except Withdrawn:
                self._say_not_begun(job)
        return Canvas.CONTINUES

    def _run_admitted(self, job: Job, spec: ToolSpec | None, admitted: Admitted, asked: float) -> None:
        self.execution.say_started(job)
        ticket = Ticket.from_json(admitted.ticket)
        is_outdated = ticket.tool != job.tool  # the call was planned anew since the message was sent
        if is_outdated or self.execution.stood_still(asked):
            raise Withdrawn
        remaining_s = admitted.remaining_ms / 1_000
        until, over_at = asked + remaining_s, self.clock.monotonic() + remaining_s
        outcome = self.execution.outcome(spec, ticket, job, until=until, enter=partial(self._enter, job, until))
        if outcome is None:
            self._say_overran(job, over_at)
        else:
            self._hand_in(job, ticket, outcome)

    def _enter(self, job: Job, until: float) -> float:
        """Ask the gate again after a wait; until when the body may run."""
        asked = self.clock.monotonic()
        try:
            goes_on = self.gate.goes_on(job)
        except TransientError as error:
            raise Withdrawn from error
        if not goes_on or self.execution.stood_still(asked):
            raise Withdrawn
        return until

    def _say_not_begun(self, job: Job) -> None:
        """Let in and not begun: unless that is said, the read is waited for until its last beat is old."""
        self.patiently.or_give_up(lambda: self.gate.lose(job), f"{job}: saying that it did not begin")

    def _say_overran(self, job: Job, over_at: float) -> None:
        """Beat once more after the deadline, so that the gate records a timeout, not a lost process."""
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
        """Whether the gate took it in time; ``None``: it never answered."""
        completion = compact(to_record(outcome))
        return self.patiently.or_give_up(lambda: self.gate.complete(job, completion), f"{job}: its result")

    def _note_late(self, job: Job) -> None:
        noted = partial(late, call_id=job.call_id, attempt=job.attempt)
        self.patiently.or_give_up(
            lambda: self.store.transact(job.turn_id, noted), f"{job}: noting that its result came late"
        )
