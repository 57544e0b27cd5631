"""Running a call that is not a read. SQL is the arbiter: it decides whether the call starts, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.doubt import unknown
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.records import Call, CallStatus
from harness_worker.core.timing import Timing
from harness_worker.core.writes import Go, HandedIn, Started, enter_write, hand_back, hand_in, start_write
from harness_worker.errors import TransientError
from harness_worker.ports import Clock, Dispatcher, TurnStore
from harness_worker.turn.retries import Retries
from harness_worker.turn.running.aftermath import Aftermath
from harness_worker.turn.running.execution import Execution
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.running.locking import Withdrawn
from harness_worker.turn.tickets import Ticket, ticket_for


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRunner:
    """Runs writes; keeps no state of any write.

    Args:
        store: The journal, the arbiter of writes.
        dispatcher: Sends wake-ups.
        execution: Runs bodies.
        aftermath: Does what follows a call's end.
        patiently: Retries if the journal does not answer once a body may have run.
        timing: The protocol's times.
        clock: This process's monotonic time.
    """

    store: TurnStore
    dispatcher: Dispatcher
    execution: Execution
    aftermath: Aftermath
    patiently: Retries
    timing: Timing
    clock: Clock

    def run(self, job: Job) -> Canvas:
        """Serve the message of a write.

        Raises:
            TransientError: The journal did not say whether the write may start.
        """
        asked = self.clock.monotonic()
        spec = self.execution.spec_of(job)
        waits = spec is not None and spec.lock is not None
        started = self._begin(job, partial(start_write, tool=job.tool, timing=self.timing, waits=waits, **_run_of(job)))
        if started is None or started.call is None:
            return self._not_started(started)
        call, ticket, until = started.call, ticket_for(started.turn, started.call), asked + started.remaining_s
        job = replace(job, attempt=call.attempt)
        self.execution.say_started(job)
        try:
            if not waits:
                self._check_start(job, asked)
                until = self._until(started, asked)
            outcome = self.execution.outcome(spec, ticket, job, until=until, enter=partial(self._enter, job))
        except Withdrawn:
            return Canvas.STAYS
        return self._hand_in(job, started, ticket, _certain(call, outcome))

    def _until(self, started: Started, asked: float) -> float:
        """Until when a body that starts now may run.

        A journal that was slow takes none of its time, as far as the hard limit, which counts from its message's
        arrival, leaves it time to end by itself.
        """
        late_s = min(self.clock.monotonic() - asked, self.timing.hard_s / 2)
        return asked + min(started.remaining_s + late_s, started.turn_s)

    def _enter(self, job: Job) -> float:
        """Record, after a wait, that the body starts; return until when it may run, which may be in the past."""
        asked = self.clock.monotonic()
        remaining_s = self._begin(job, partial(enter_write, **_run_of(job)))
        if remaining_s is None:
            raise Withdrawn
        if remaining_s > 0:
            self._check_start(job, asked)
        return asked + remaining_s

    def _begin(self, job: Job, rule: Callable[[Snapshot], Decision[T]]) -> T | None:
        """Commit the start of a body. A commit that may have been made is undone, because the body was not started.

        It is undone only if the rule did allow the start. Otherwise, the run that the journal has for this process may
        be an earlier one, whose body ran and whose end was never recorded.
        """
        begun: list[Call] = []

        def noted(snapshot: Snapshot) -> Decision[T]:
            decision = rule(snapshot)
            begun[:] = [call for call in decision.calls if call.status is CallStatus.RUNNING]
            return decision

        try:
            return self.store.transact(job.turn_id, noted)
        except TransientError:
            for call in begun:
                self._hand_back(replace(job, attempt=call.attempt))
            raise

    def _check_start(self, job: Job, asked: float) -> None:
        """Hand the call back if the gate forbids it, or if this process was stopped since it asked the journal."""
        if not self.execution.gate_lets(job) or self.execution.stood_still(asked):
            self._hand_back(job)
            raise Withdrawn

    def _hand_back(self, job: Job) -> None:
        back = partial(hand_back, **_run_of(job))
        self.patiently.or_give_up(lambda: self.store.transact(job.turn_id, back), f"{job}: handing it back")

    def _not_started(self, started: Started | None) -> Canvas:
        if started is not None and started.go is Go.WAKE:
            self._wake(started)
        return Canvas.CONTINUES if started is not None and started.go is Go.PASS else Canvas.STAYS

    def _hand_in(self, job: Job, started: Started, ticket: Ticket, outcome: ToolOutcome | None) -> Canvas:
        handed = self._committed(job, outcome)
        if handed is None:
            self.aftermath.log_lost(job)
            return Canvas.STAYS
        if handed.go is Go.WAKE:
            self._wake(started)
        if handed.outcome is not None:
            self.aftermath.tell(ticket, handed.outcome, attempt=job.attempt)
        else:
            self.aftermath.count_late(job)
            self.aftermath.discard(job, ticket, outcome)
        return Canvas.CONTINUES if handed.go is Go.PASS else Canvas.STAYS

    def _committed(self, job: Job, outcome: ToolOutcome | None) -> HandedIn | None:
        """What the journal decides about the outcome; ``None`` if it never answered."""
        rule = partial(hand_in, outcome=outcome, **_run_of(job))
        return self.patiently.or_give_up(
            lambda: self.store.transact(job.turn_id, rule, follows=True), f"{job}: its result"
        )

    def _wake(self, started: Started) -> None:
        self.dispatcher.advance(started.turn.id, started.turn.priority)


def _certain(call: Call, outcome: ToolOutcome | None) -> ToolOutcome | None:
    """The outcome to report: a write that did not start is in doubt if an earlier attempt of it may have started."""
    if isinstance(outcome, ToolDenied) and call.attempt > 1:
        in_time = " in time" if outcome.reason is DenialReason.DEADLINE else f": {outcome.details}"
        return unknown(call, f"could not run again{in_time}")
    return outcome


def _run_of(job: Job) -> dict[str, object]:
    """The call, its attempt and its process, as keyword arguments of the rules for writes."""
    return {"call_id": job.call_id, "attempt": job.attempt, "runner": job.runner}
