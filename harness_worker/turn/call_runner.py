"""What a tool process does with one message: ask whether it may start, run, hand in the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from harness_worker.core.canonical import compact
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.doubt import lock_missed, too_late, unknown
from harness_worker.core.outcomes import DenialReason, ToolArtifactReference, ToolDenied, ToolOutcome, to_record
from harness_worker.core.records import Call, CallStatus
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.timing import Timing
from harness_worker.core.writes import Go, Started, enter_write, hand_back, hand_in, late, start_write
from harness_worker.errors import TransientError
from harness_worker.ports import Admission, Artifacts, Clock, Dispatcher, Gate, LockName, RunningCall, TurnStore
from harness_worker.turn.deltas import Hint
from harness_worker.turn.hooking import HookCaller, tell_used
from harness_worker.turn.locking import LockKeeper, Withdrawn
from harness_worker.turn.tickets import Ticket, ticket_for
from harness_worker.turn.tool_body import ToolBody
from harness_worker.wire import HintType

log = logging.getLogger(__name__)

STALE_START_S = 2.0
"""More than this between asking and starting means this process was stopped in between: do not start."""

OVERRUN_WAIT_S = 2.0
"""A read whose body ended no longer than this before its deadline, without an outcome, waits for it to say so."""

MISS_TOLD_S = 0.5
MISS_TOLD_SHARE = 0.1
"""How long before its deadline (and at most which share of its time) a read stops waiting for its lock, so that the
gate still accepts the outcome ``lock_missed``."""

HAND_IN_RETRIES = 8
"""After the first try."""

TOOL_STARTED: Final[HintType] = "tool.started"


class Canvas(StrEnum):
    """What the Celery canvas that sent a call does once its message is served."""

    CONTINUES = "continues"
    """The chord counts its part, the chain sends its next link."""
    STAYS = "stays"
    """It stays where it is: some other message or a coordinator takes care."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(RunningCall):
    """One message to a tool process: the call that was sent, and the process it reached.

    Args:
        tool: The tool's name.
        is_read: Whether the gate decides its outcome; else SQL does.
    """

    tool: str
    is_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRunner:
    """Runs calls; holds nothing of any of them.

    Args:
        store: The journal.
        artifacts: Knows which artifacts the journal names.
        gate: The arbiter of reads.
        dispatcher: Sends wake-ups.
        body: Executes a call.
        keeper: Takes the locks that calls ask for.
        tools: What this process serves, by name.
        clock: This process's monotonic time.
        timing: The protocol's times.
        on_late: Told of each result that came too late.
        hint: Shows to those who watch that a call was taken on.
        agents: Whose hooks to call, by name.
        hooks: Calls them.
    """

    store: TurnStore
    artifacts: Artifacts
    gate: Gate
    dispatcher: Dispatcher
    body: ToolBody
    keeper: LockKeeper
    tools: Mapping[str, ToolSpec]
    clock: Clock
    timing: Timing
    on_late: Callable[[], None]
    hint: Hint
    agents: Mapping[str, AgentSpec]
    hooks: HookCaller

    def run(self, job: Job) -> Canvas:
        """Serve one message. A call that could not be started is sent again by a look-in.

        Raises only what is not a ``TransientError``: the task then fails, and its parent reports the call as lost.
        """
        try:
            return self._read(job) if job.is_read else self._write(job)
        except TransientError as error:
            log.warning("call %s of turn %s not started, a look-in will: %s", job.call_id, job.turn_id, error)
            return Canvas.CONTINUES if job.is_read else Canvas.STAYS

    # --- reads: the gate is the arbiter

    def _read(self, job: Job) -> Canvas:
        spec = self._spec_of(job)
        cap_ms = int(spec.timeout_s * 1_000) if spec is not None else 1_000
        asked = self.clock.monotonic()
        admitted = self.gate.admit(job.turn_id, job.call_id, job.attempt, cap_ms, job.runner)
        if admitted.answer is Admission.DUPLICATE:
            return Canvas.STAYS
        if admitted.answer is not Admission.OK:
            return Canvas.CONTINUES
        self._say_started(job)
        ticket = Ticket.from_json(admitted.ticket)
        if self._was_stopped(asked) or ticket.tool != job.tool:  # an old message, and a call that was planned anew
            return self._withdrawn(job)
        remaining_s = admitted.remaining_ms / 1_000
        until, over_at = asked + remaining_s, self.clock.monotonic() + remaining_s
        try:
            outcome = self._outcome(spec, ticket, job, until=until, enter=lambda: self._enter_read(job, until))
        except Withdrawn:
            return self._withdrawn(job)
        if outcome is None:
            self._say_overran(job, over_at)
        else:
            self._hand_in_read(job, ticket, outcome)
        return Canvas.CONTINUES

    def _hand_in_read(self, job: Job, ticket: Ticket, outcome: ToolOutcome) -> None:
        match self._complete(job, outcome):
            case True:
                self._tell(ticket, outcome, attempt=job.attempt)
            case False:
                self._late(job)
                self._discard(job, ticket, outcome)
            case None:
                self._log_lost(job)

    def _withdrawn(self, run: RunningCall) -> Canvas:
        """Let in and not begun: say so, or it is waited for until its last beat is old."""
        self._patiently(run, "saying that it did not begin", lambda: self.gate.lose(run), otherwise=None)
        return Canvas.CONTINUES

    def _say_overran(self, run: RunningCall, over_at: float) -> None:
        """Beat once more after the deadline, so that the gate records a timeout, not a lost process."""
        left_s = over_at - self.clock.monotonic()
        if left_s <= OVERRUN_WAIT_S:
            self.clock.wait(max(0.0, left_s))
            self._patiently(run, "a last beat", lambda: self.gate.beat([run]), otherwise=None)

    def _enter_read(self, run: RunningCall, until: float) -> float:
        """Ask the gate again after a wait; until when the body may run."""
        asked = self.clock.monotonic()
        try:
            goes_on = self.gate.goes_on(run)
        except TransientError as error:
            raise Withdrawn from error
        if not goes_on or self._was_stopped(asked):
            raise Withdrawn
        return until

    def _complete(self, job: Job, outcome: ToolOutcome) -> bool | None:
        """Whether the gate took it in time; ``None``: it never answered."""
        completion = compact(to_record(outcome))
        return self._patiently(job, "its result", lambda: self.gate.complete(job, completion), otherwise=None)

    # --- every other call: SQL is the arbiter

    def _write(self, job: Job) -> Canvas:
        asked = self.clock.monotonic()
        spec = self._spec_of(job)
        waits = spec is not None and spec.lock is not None
        started = self._begin(job, partial(start_write, tool=job.tool, timing=self.timing, waits=waits, **_run_of(job)))
        if started is None or started.call is None:
            return self._not_started(started)
        call, ticket, until = started.call, ticket_for(started.turn, started.call), asked + started.remaining_s
        job = replace(job, attempt=call.attempt)
        self._say_started(job)
        try:
            if not waits:
                self._check_start(job, asked)
            outcome = self._outcome(spec, ticket, job, until=until, enter=lambda: self._enter_write(job))
        except Withdrawn:
            return Canvas.STAYS
        return self._hand_in(job, started, ticket, None if outcome is None else _certain(call, outcome))

    def _enter_write(self, job: Job) -> float:
        """Have the journal note that the body begins, after a wait; until when it may run, which may be over."""
        asked = self.clock.monotonic()
        remaining_s = self._begin(job, partial(enter_write, **_run_of(job)))
        if remaining_s is None:
            raise Withdrawn
        if remaining_s > 0:
            self._check_start(job, asked)
        return asked + remaining_s

    def _begin(self, job: Job, rule: Callable[[Snapshot], Decision[T]]) -> T | None:
        """Commit what lets a body begin. A commit that may have been made is undone: the body was not entered.

        Only where the rule did let it begin: what else is known as this process's run may be an earlier one, whose
        body ran and whose end the journal never heard.
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
                back = partial(hand_back, **_run_of(replace(job, attempt=call.attempt)))
                self._transact(job, "handing it back", back)
            raise

    def _check_start(self, job: Job, asked: float) -> None:
        """Hand the call back if the gate forbids it, or this process stood still since it asked the journal."""
        if not self._gate_lets(job) or self._was_stopped(asked):
            self._transact(job, "handing it back", partial(hand_back, **_run_of(job)))
            raise Withdrawn

    def _not_started(self, started: Started | None) -> Canvas:
        if started is not None and started.go is Go.WAKE:
            self._wake(started)
        return Canvas.CONTINUES if started is not None and started.go is Go.PASS else Canvas.STAYS

    def _gate_lets(self, run: RunningCall) -> bool:
        """Whether the gate lets a write start, or a body go on; a gate that is gone or silent forbids nothing."""
        try:
            return self.gate.admits_write(run.turn_id, run.call_id, run.attempt)
        except TransientError as error:
            log.warning("gate did not answer for %s of turn %s, going on: %s", run.call_id, run.turn_id, error)
            return True

    def _hand_in(self, job: Job, started: Started, ticket: Ticket, outcome: ToolOutcome | None) -> Canvas:
        rule = partial(hand_in, outcome=outcome, **_run_of(job))
        handed = self._patiently(
            job, "its result", lambda: self.store.transact(job.turn_id, rule, follows=True), otherwise=None
        )
        go, told = (None, None) if handed is None else (handed.go, handed.outcome)
        if go is Go.WAKE:
            self._wake(started)
        if go in (Go.PASS, Go.WAKE) and told is not None:
            self._tell(ticket, told, attempt=job.attempt)
        elif go is None:
            self._log_lost(job)
        else:
            self._log_late(job)
            self._discard(job, ticket, outcome)
        return Canvas.CONTINUES if go is Go.PASS else Canvas.STAYS

    # --- shared

    def _spec_of(self, job: Job) -> ToolSpec | None:
        """Its tool; none if another version made a write of a read, or the reverse, for they are run in other ways."""
        spec = self.tools.get(job.tool)
        return spec if spec is not None and spec.is_read == job.is_read else None

    def _say_started(self, job: Job) -> None:
        """Before the last look at the clock: a Redis that hangs here must not let a body begin too late."""
        self.hint(job.turn_id, TOOL_STARTED, {"call_id": job.call_id, "tool": job.tool, "attempt": job.attempt})

    def _outcome(
        self, spec: ToolSpec | None, ticket: Ticket, run: RunningCall, *, until: float, enter: Callable[[], float]
    ) -> ToolOutcome | None:
        """Run the body, holding its lock if it has one; ``enter`` says until when, or withdraws, after that wait."""
        if spec is None:
            details = f"{ticket.tool} is not served by the worker that was asked to run it"
            reason = DenialReason.VALIDATION
            return ToolDenied(call_id=ticket.call_id, tool_name=ticket.tool, reason=reason, details=details)
        if spec.lock is None:
            return self._body(spec, ticket, run, until, None)
        name = spec.lock(dict(ticket.arguments))
        if name is None:
            return self._body(spec, ticket, run, enter(), None)
        lock, left_s = LockName(tenant=ticket.tenant, name=name), until - self.clock.monotonic()
        wait_s = left_s - min(MISS_TOLD_S, left_s * MISS_TOLD_SHARE) if spec.is_read else left_s
        with self.keeper.holding(lock, run, remaining_s=wait_s, is_revoked=self._revoked(run)) as fence:
            if fence is not None:
                return self._body(spec, ticket, run, enter(), fence)
        return lock_missed(ticket.call_id, ticket.tool, is_read=spec.is_read, lock=f"the lock {name}")

    def _body(
        self, spec: ToolSpec, ticket: Ticket, run: RunningCall, until: float, fence: int | None
    ) -> ToolOutcome | None:
        remaining_s = until - self.clock.monotonic()
        if remaining_s <= 0:
            return None if spec.is_read else too_late(ticket.call_id, ticket.tool)
        return self.body.run(
            spec,
            ticket,
            attempt=run.attempt,
            remaining_s=remaining_s,
            is_revoked=self._revoked(run),
            fence=fence,
        )

    def _revoked(self, run: RunningCall) -> Callable[[], bool]:
        return lambda: not self._gate_lets(run)

    def _tell(self, ticket: Ticket, outcome: ToolOutcome, *, attempt: int) -> None:
        """Call the post hooks: only now, for a late outcome is nobody's business; nor is a call that never ran."""
        agent = self.agents.get(ticket.agent)
        if agent is not None and agent.hooks and not isinstance(outcome, ToolDenied):
            tell_used(self.hooks, agent.hooks, ticket, outcome, attempt=attempt)

    def _was_stopped(self, asked: float) -> bool:
        return self.clock.monotonic() - asked > STALE_START_S

    def _late(self, job: Job) -> None:
        self._log_late(job)
        self._transact(job, "noting that it came late", partial(late, call_id=job.call_id, attempt=job.attempt))

    def _log_late(self, job: Job) -> None:
        self.on_late()
        log.warning("late result of %s (call %s, turn %s) dropped", job.tool, job.call_id, job.turn_id)

    def _discard(self, job: Job, ticket: Ticket, outcome: ToolOutcome | None) -> None:
        """Remove what was stored of an outcome that came too late, unless the journal names it after all."""
        if not isinstance(outcome, ToolArtifactReference):
            return
        named = partial(self.artifacts.url_of, outcome.artifact_id, tenant=ticket.tenant, session_id=ticket.session_id)
        if self._patiently(job, "looking whether its artifact is named", named, otherwise=outcome.url) is None:
            self.body.discard(outcome)

    def _log_lost(self, job: Job) -> None:
        """Nobody answered who could take the result: that says nothing of whether it came in time."""
        log.warning("result of %s (call %s, turn %s) is lost", job.tool, job.call_id, job.turn_id)

    def _transact(self, job: Job, what: str, rule: Callable[[Snapshot], Decision[T]]) -> None:
        self._patiently(job, what, lambda: self.store.transact(job.turn_id, rule), otherwise=None)

    def _wake(self, started: Started) -> None:
        self.dispatcher.advance(started.turn.id, started.turn.priority)

    def _patiently(self, run: RunningCall, what: str, work: Callable[[], T], *, otherwise: T) -> T:
        """``work``, tried again while the outside does not answer: the tool has run and must not be run again."""
        try:
            return work()
        except TransientError as error:
            told = f"call {run.call_id} of turn {run.turn_id}: {what}"
            log.warning("%s: trying again: %s", told, error)
        retrying = Retrying(
            retry=retry_if_exception_type(TransientError),
            wait=wait_exponential(multiplier=0.1, max=2.0),
            stop=stop_after_attempt(HAND_IN_RETRIES),
            sleep=self.clock.wait,
        )
        try:
            return retrying(work)
        except RetryError as gave_up:
            log.warning("%s: given up: %s", told, gave_up.last_attempt.exception())
            return otherwise


def _certain(call: Call, outcome: ToolOutcome) -> ToolOutcome:
    """What is told of a write: one that did not start is in doubt if an earlier attempt of it may have."""
    if isinstance(outcome, ToolDenied) and call.attempt > 1:
        in_time = " in time" if outcome.reason is DenialReason.DEADLINE else f": {outcome.details}"
        return unknown(call, f"could not run again{in_time}")
    return outcome


def _run_of(job: Job) -> dict[str, object]:
    return {"call_id": job.call_id, "attempt": job.attempt, "runner": job.runner}
