"""What must hold while a turn runs, whatever goes wrong; each breach is recorded with what broke it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness_worker.core.approvals import is_undecided, next_expiry, waiting
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.doubt import is_doubt
from harness_worker.core.records import Call, CallStatus, Turn
from harness_worker.core.run_context import RunContext
from harness_worker.turn.running.execution import STALE_START_S
from harness_worker.wire import TurnStatus
from tests.unit.memory_store import MemoryTurnStore
from tests.unit.simulation.kernel import Kernel, Process

CLOSE_S = 1.0
"""In a run without faults nobody sleeps longer on something that is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """One execution of a tool's body."""

    call_id: str
    attempt: int
    process: Process
    holds_lock: bool = False


@dataclass(slots=True, kw_only=True)
class Laws:
    """Watches commits, admissions and bodies.

    Attributes:
        broken: Breaches so far, as ``law: what``.
        met: How often each remarkable situation arose.
        entered_bodies: How often each (call, attempt) was entered.
        effects: When each call had its effect.
    """

    kernel: Kernel
    store: MemoryTurnStore
    turn_id: str
    is_faultless: bool
    broken: list[str] = field(default_factory=list[str])
    met: Counter[str] = field(default_factory=Counter[str])
    entered_bodies: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    effects: dict[str, list[float]] = field(default_factory=lambda: defaultdict[str, list[float]](list))
    active: list[Body] = field(default_factory=list[Body])
    asked: dict[str, tuple[float, bool]] = field(default_factory=dict[str, tuple[float, bool]])
    done_reads: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    due_since: float | None = None
    locks_may_be_lost: bool = False
    last_fence: int = 0
    claims: list[float] = field(default_factory=list[float])

    # --- commits

    def committed(self, before: Snapshot, decision: Decision[Any], after: Turn) -> None:
        """A decision was written."""
        if before.turn.status.is_final:
            wrote = decision.turn or decision.calls or decision.messages or decision.events or decision.artifacts
            self._must(not wrote, "changed after the end", decision)
        if after.status.is_final:
            self._must(after.wake_at is None and after.owner is None, "still driven after the end", after)
        else:
            self._must(after.wake_at is not None, "nobody would look again", after)
            self._check_parked(after)
        known = {call.call_id: call for call in before.calls}
        for call in decision.calls:
            self._check_change(known.get(call.call_id, call), call)
        if after.fence > before.turn.fence:
            self._must(not _rests(before), "claimed with nothing to do", after)
            self._must(not self._is_behind(after), "began before its turn", after)
            self._claimed(after)
        self._note_due(after)

    def _check_parked(self, turn: Turn) -> None:
        _, calls = self.store.load(self.turn_id) or (turn, ())
        if turn.status is TurnStatus.REQUIRES_ACTION:
            self._must(waiting(calls) and turn.owner is None, "parked, and nothing is asked", turn)
            self._must(not any(call.is_open for call in calls), "parked while calls are open", turn)
            self.met["parked"] += 1

    def _check_change(self, old: Call, new: Call) -> None:
        given = old.approval.arguments if old.approval is not None else None
        same = old.idempotency_key == new.idempotency_key and new.arguments in (old.arguments, given)
        same = same or old.status is CallStatus.PLANNED
        self._must(same and self._may_count(old, new), "a call changed what it is", new)
        if old.status is CallStatus.ENDED:
            self._must(old.outcome == new.outcome and new.status is old.status, "an outcome changed", new)
        if new.attempt > old.attempt:
            self.met["run again"] += 1
            self._must(new.is_read or new.retry_safe, "an unsafe write is to run again", new)

    def _may_count(self, old: Call, new: Call) -> bool:
        """Attempts rise; but a read may end as the one before, if no body was entered in the one that was sent."""
        is_told_as_before = new.is_read and new.status is CallStatus.ENDED and new.attempt == old.attempt - 1
        if is_told_as_before:
            self.met["told as the attempt before"] += 1
        never_begun = not self.entered_bodies[(old.call_id, old.attempt)]
        return new.attempt >= old.attempt or (is_told_as_before and never_begun)

    def _claimed(self, turn: Turn) -> None:
        self.claims.append(self.kernel.now)
        if self.is_faultless and self.due_since is not None:
            late_s = self.kernel.now - self.due_since
            self._must(late_s <= CLOSE_S, "slept on what was to be done", f"{late_s:.2f} s, fence {turn.fence}")
        self.due_since = None

    def _note_due(self, turn: Turn) -> None:
        """Remember since when a turn that nobody drives has something to do."""
        _, calls = self.store.load(self.turn_id) or (turn, ())
        ready = turn.cancel_requested or all(self._is_done(c) for c in calls if c.is_open)
        ready = ready and (turn.cancel_requested or turn.status is not TurnStatus.REQUIRES_ACTION)
        if turn.owner is not None or turn.status.is_final or not ready or self._is_behind(turn):
            self.due_since = None
        elif self.due_since is None:
            self.due_since = self.kernel.now

    def freed(self) -> None:
        """A turn of its session has ended that another waited for."""
        turn = self.store.turns.get(self.turn_id)
        if turn is not None and turn.waits:
            self._note_due(turn)

    def posted(self) -> None:
        """It was made."""
        self._note_due(self.store.turns[self.turn_id])

    def heard(self) -> None:
        """A turn that it waits for has ended."""
        self._note_due(self.store.turns[self.turn_id])

    def cancelled(self) -> None:
        """A client, or the end of the turn that asked for it, has cancelled the turn."""
        self._note_due(self.store.turns[self.turn_id])

    def completed(self, call_id: str, attempt: int) -> None:
        """The gate has accepted a read's outcome."""
        self.done_reads.add((call_id, attempt))
        self._note_due(self.store.turns[self.turn_id])

    # --- admissions

    def admitted(self) -> None:
        """The gate let a read start, or the journal a write, for the process that runs now."""
        turn = self.store.turns[self.turn_id]
        self.asked[self.kernel.me().name] = (self.kernel.now, turn.status.is_final)

    def started(self) -> None:
        """The journal let a write start."""
        self.admitted()
        turn = self.store.turns[self.turn_id]
        parent = self.store.turns[turn.parent_id] if turn.parent_id is not None else None
        self._must(parent is None or not parent.status.is_final, "a write began after its parent's end", turn.id)

    # --- bodies

    def entered(self, context: RunContext, tool: str) -> str:
        """See ``script.Watcher``."""
        process, call = self.kernel.me(), self._call(context.call_id)
        at, was_over = self.asked.get(process.name, (-1.0, True))
        self._must(not was_over, "let in after the end", call.call_id)
        self._must(self.kernel.now - at <= STALE_START_S + 1e-6, "started long after it was let in", call.call_id)
        if self.store.turns[self.turn_id].status.is_final:
            self.met["started at the very end"] += 1
        key = (context.call_id, context.attempt)
        self.entered_bodies[key] += 1
        self._must(self.entered_bodies[key] == 1, "one attempt entered twice", key)
        self._must(context.attempt <= call.attempt, "an attempt entered that is told as never begun", key)
        agreed = call.approval is None or (call.approval.is_resolved and call.approval.decision == "approve")
        self._must(agreed, "ran without approval", call)
        self._must(context.idempotency_key == call.idempotency_key, "another key", key)
        self._check_order(call, tool)
        if context.fence is not None:
            self._check_lock(context)
        self.active.append(
            Body(call_id=call.call_id, attempt=context.attempt, process=process, holds_lock=context.fence is not None)
        )
        return f"{context.call_id}#{context.attempt}@{process.name}"

    def _check_order(self, call: Call, tool: str) -> None:
        _, calls = self.store.load(self.turn_id) or (None, ())
        earlier = [c for c in calls if c.step == call.step and c.wave < call.wave and c.status is not CallStatus.ENDED]
        self._must(not earlier, "started before an earlier wave had ended", (call.call_id, tool))
        doubtful = [c.call_id for c in calls if c.step == call.step and c.position < call.position and is_doubt(c)]
        self._must(not doubtful, "started after a doubt", (call.call_id, doubtful))
        if not call.is_read:
            for other in (body for body in self.active if not self._call(body.call_id).is_read):
                self._check_beside(call, other)

    def _check_beside(self, call: Call, other: Body) -> None:
        known = self._call(other.call_id)
        if is_doubt(known):
            self.met["beside a write reported as doubtful"] += 1
        elif other.attempt < known.attempt:
            self.met["beside a superseded attempt"] += 1
        else:
            self._must(ok=False, law="two writes at once", what=(call.call_id, other.call_id))

    def _check_lock(self, context: RunContext) -> None:
        """Fences rise; bodies overlap only where a holder was taken for dead, or the locks were lost."""
        self._must((context.fence or 0) > self.last_fence or self.locks_may_be_lost, "a fence fell", context)
        self.last_fence = max(self.last_fence, context.fence or 0)
        beside = [body.call_id for body in self.active if body.holds_lock]
        self._must(not beside or self.locks_may_be_lost, "two hold one lock", (context.call_id, beside))
        self.met["beside another holder" if beside else "held a lock"] += 1

    def acted(self, context: RunContext, tool: str) -> None:
        """See ``script.Watcher``."""
        call, done = self._call(context.call_id), self.effects[context.call_id]
        done.append(self.kernel.now)
        if call.is_read:
            return
        self._must(call.retry_safe or len(done) == 1, "an unsafe write had its effect twice", (call.call_id, tool))
        step = f"{call.step}."
        later = [c for c in self.effects if c.startswith(step) and self._call(c).position > call.position]
        overtaken = [c for c in later if self.effects[c] and not self._call(c).is_read]
        if len(done) == 1 and overtaken:
            self._must(is_doubt(call), "a later write had its effect first", (call.call_id, overtaken))

    def left(self) -> None:
        """See ``script.Watcher``; a killed process leaves too."""
        self.active = [body for body in self.active if body.process.alive and body.process is not self.kernel.running]

    def died(self) -> None:
        """A process was killed."""
        self.active = [body for body in self.active if body.process.alive]

    # --- shared

    def _is_done(self, call: Call) -> bool:
        """Whether it is known, where a coordinator looks for it, how the open call has ended."""
        if not call.is_delegated:
            return (call.call_id, call.attempt) in self.done_reads
        return all(t.status.is_final for t in self.store.children(self.turn_id) if t.parent_call_id == call.call_id)

    def _is_behind(self, turn: Turn) -> bool:
        """Whether an earlier turn of the session has not ended; a cancel does not wait for that."""
        mine = [each for each in self.store.turns.values() if each.session_id == turn.session_id]
        earlier = [each for each in mine if each.number < turn.number]
        return not turn.cancel_requested and not all(each.status.is_final for each in earlier)

    def _call(self, call_id: str) -> Call:
        _, calls = self.store.load(self.turn_id) or (None, ())
        return next(call for call in calls if call.call_id == call_id)

    def _must(self, ok: object, law: str, what: object) -> None:
        if not ok:
            self.broken.append(f"{law}: {what}")


def _rests(before: Snapshot) -> bool:
    """Whether a turn waits for people who have said nothing yet, and still may."""
    turn, calls = before.turn, before.calls
    if turn.status is not TurnStatus.REQUIRES_ACTION or turn.cancel_requested:
        return False
    expires_at = next_expiry(calls)
    return len(waiting(calls)) == sum(map(is_undecided, calls)) and expires_at is not None and before.now < expires_at


@dataclass(frozen=True, slots=True)
class Witness:
    """Implements ``script.Watcher`` for several turns, each with laws of its own."""

    laws: Mapping[str, Laws]

    def entered(self, context: RunContext, tool: str) -> str:
        """See ``script.Watcher``."""
        return self.laws[context.turn_id].entered(context, tool)

    def acted(self, context: RunContext, tool: str) -> None:
        """See ``script.Watcher``."""
        self.laws[context.turn_id].acted(context, tool)

    def left(self) -> None:
        """See ``script.Watcher``."""
        for each in self.laws.values():
            each.left()
