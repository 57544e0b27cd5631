"""What a tool process does with one message: ask whether it may start, run, hand in the result (design §5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from harness_worker.core.canonical import compact
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.doubt import unknown
from harness_worker.core.outcomes import ToolFailure, ToolOutcome, to_record
from harness_worker.core.records import Call
from harness_worker.core.timing import Timing
from harness_worker.core.tools import ToolSpec
from harness_worker.core.writes import Go, Started, end_write, hand_back, late, start_write
from harness_worker.errors import TransientError
from harness_worker.ports import Admission, Clock, Dispatcher, Gate, RunningCall, TurnStore
from harness_worker.turn.tickets import Ticket, ticket_for
from harness_worker.turn.tool_body import ToolBody

log = logging.getLogger(__name__)

STALE_START_S = 2.0
"""More than this between asking and starting means this process was stopped in between: do not start."""

HAND_IN_TRIES = 8


class Handed(StrEnum):
    """What the canvas does next."""

    ON = "on"
    """Let it go on: the chord counts its part, the chain sends its next link."""
    NOT = "not"
    """Leave it where it is: some other message or a coordinator takes care."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One message to a tool process.

    Args:
        turn_id: The turn.
        call_id: The call.
        attempt: Which attempt of it was sent.
        tool: The tool's name.
        is_read: Whether the gate decides its outcome; else SQL does.
        runner: The process it reached, ``host/pid``.
    """

    turn_id: str
    call_id: str
    attempt: int
    tool: str
    is_read: bool
    runner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """Runs calls; holds nothing of any of them."""

    store: TurnStore
    gate: Gate
    dispatcher: Dispatcher
    body: ToolBody
    tools: Mapping[str, ToolSpec]
    clock: Clock
    timing: Timing

    def run(self, job: Job) -> Handed:
        """Serve one message.

        Raises:
            TransientError: The gate or the store did not answer before the tool was started; nothing was done.
        """
        return self._read(job) if job.is_read else self._write(job)

    # --- reads: the gate is the arbiter

    def _read(self, job: Job) -> Handed:
        spec = self.tools.get(job.tool)
        cap_ms = int(spec.timeout_s * 1_000) if spec is not None else 1_000
        asked = self.clock.monotonic()
        admitted = self.gate.admit(job.turn_id, job.call_id, job.attempt, cap_ms, job.runner)
        if admitted.answer is Admission.DUPLICATE:
            return Handed.NOT
        if admitted.answer is not Admission.OK or self._was_stopped(asked):
            return Handed.ON
        ticket = Ticket.from_json(admitted.ticket)
        outcome = self._outcome(spec, ticket, attempt=job.attempt, remaining_s=admitted.remaining_ms / 1_000)
        if outcome is not None and not self._complete(job, outcome):
            self._late(job)
        return Handed.ON

    def _complete(self, job: Job, outcome: ToolOutcome) -> bool:
        run = RunningCall(turn_id=job.turn_id, call_id=job.call_id, attempt=job.attempt, runner=job.runner)
        completion = compact(to_record(outcome))
        return self._patiently(lambda: self.gate.complete(run, completion), otherwise=False)

    # --- every other call: SQL is the arbiter

    def _write(self, job: Job) -> Handed:
        asked = self.clock.monotonic()
        started = self.store.transact(
            job.turn_id,
            partial(start_write, call_id=job.call_id, attempt=job.attempt, runner=job.runner, timing=self.timing),
        )
        if started is None or started.call is None:
            return self._not_started(started)
        if not self._gate_lets(job.turn_id, job.call_id, started.call.attempt):
            self._transact(job, partial(hand_back, **_run_of(job, started.call)))
            return Handed.NOT
        if self._was_stopped(asked):
            self._transact(job, partial(hand_back, **_run_of(job, started.call)))
            return Handed.NOT
        spec = self.tools.get(job.tool)
        ticket = ticket_for(started.turn, started.call)
        outcome = self._outcome(spec, ticket, attempt=started.call.attempt, remaining_s=started.remaining_s)
        return self._hand_in(job, started.call, outcome or unknown(started.call, "did not end in time"))

    def _not_started(self, started: Started | None) -> Handed:
        if started is not None and started.go is Go.WAKE:
            self._wake(started)
        return Handed.ON if started is not None and started.go is Go.PASS else Handed.NOT

    def _gate_lets(self, turn_id: str, call_id: str, attempt: int) -> bool:
        """Whether the gate lets a write start, or a body go on; a gate that is gone or silent forbids nothing."""
        try:
            return self.gate.admits_write(turn_id, call_id, attempt)
        except TransientError as error:
            log.warning("gate did not answer for %s of turn %s, going on: %s", call_id, turn_id, error)
            return True

    def _hand_in(self, job: Job, call: Call, outcome: ToolOutcome) -> Handed:
        rule = partial(end_write, outcome=outcome, **_run_of(job, call))
        go = self._patiently(lambda: self.store.transact(job.turn_id, rule), otherwise=None)
        if go is Go.PASS:
            return Handed.ON
        if go is Go.WAKE:
            self._advance(job.turn_id)
        else:
            self._log_late(job)
        return Handed.NOT

    # --- shared

    def _outcome(
        self, spec: ToolSpec | None, ticket: Ticket, *, attempt: int, remaining_s: float
    ) -> ToolOutcome | None:
        if spec is None:
            error = f"{ticket.tool} is not served by the worker that was asked to run it"
            return ToolFailure(call_id=ticket.call_id, tool_name=ticket.tool, error=error)
        return self.body.run(
            spec,
            ticket,
            attempt=attempt,
            remaining_s=remaining_s,
            is_revoked=lambda: not self._gate_lets(ticket.turn_id, ticket.call_id, attempt),
        )

    def _was_stopped(self, asked: float) -> bool:
        return self.clock.monotonic() - asked > STALE_START_S

    def _late(self, job: Job) -> None:
        self._log_late(job)
        self._transact(job, partial(late, call_id=job.call_id, attempt=job.attempt))

    def _log_late(self, job: Job) -> None:
        log.warning("late result of %s (call %s, turn %s) dropped", job.tool, job.call_id, job.turn_id)

    def _transact(self, job: Job, rule: Callable[[Snapshot], Decision[T]]) -> None:
        self._patiently(lambda: self.store.transact(job.turn_id, rule), otherwise=None)

    def _wake(self, started: Started) -> None:
        self.dispatcher.advance(started.turn.id, started.turn.priority)

    def _advance(self, turn_id: str) -> None:
        loaded = self._patiently(lambda: self.store.load(turn_id), otherwise=None)
        if loaded is not None:
            self.dispatcher.advance(turn_id, loaded[0].priority)

    def _patiently(self, work: Callable[[], T], *, otherwise: T) -> T:
        """``work``, tried again while the outside does not answer: the tool has run and must not be run again."""
        try:
            return work()
        except TransientError as error:
            log.warning("trying again: %s", error)
        retrying = Retrying(
            retry=retry_if_exception_type(TransientError),
            wait=wait_exponential(multiplier=0.1, max=2.0),
            stop=stop_after_attempt(HAND_IN_TRIES),
            sleep=self.clock.wait,
        )
        try:
            return retrying(work)
        except RetryError as gave_up:
            log.warning("result not handed in: %s", gave_up.last_attempt.exception())
            return otherwise


def _run_of(job: Job, call: Call) -> dict[str, object]:
    return {"call_id": job.call_id, "attempt": call.attempt, "runner": job.runner}
