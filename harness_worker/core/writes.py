"""Starting and ending a sequential call, whose outcome SQL decides (ADR 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from harness_worker.core.collect_writes import lost_write
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.doubt import end_with_doubt, is_doubt, unknown
from harness_worker.core.ending import STOPPED_BECAUSE
from harness_worker.core.lifecycle import decide, end_call, unstart
from harness_worker.core.outcomes import DenialReason, ToolDenied, ToolOutcome
from harness_worker.core.records import Call, CallStatus, EventDraft, Turn
from harness_worker.core.timing import Timing
from harness_worker.core.visits import StopCause


class Go(StrEnum):
    """What a tool worker must do with a sequential call that it was sent."""

    RUN = "run"
    PASS = "pass"  # noqa: S105 - not a password
    """It has already ended, well or not: let the chain go on."""
    IGNORE = "ignore"
    """Ignore it, and do not continue the chain."""
    WAKE = "wake"
    """Ignore it, and send a coordinator to look at the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The answer to a request to start a call.

    Args:
        go: What to do.
        turn: The turn.
        call: The call as it is now; its ``attempt`` is the one to run.
        remaining_s: How long it may run, in seconds: until its tool's time or its turn's is over.
        turn_s: How long its turn's time still is, in seconds.
    """

    go: Go
    turn: Turn
    call: Call | None = None
    remaining_s: float = 0.0
    turn_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedIn:
    """What to do after a body's end, and the call's recorded outcome; ``None`` if the result came too late."""

    go: Go
    outcome: ToolOutcome | None = None


def start_write(  # noqa: PLR0913 - what a message names, and who asks
    snapshot: Snapshot, *, call_id: str, tool: str, attempt: int, runner: str, timing: Timing, waits: bool = False
) -> Decision[Started]:
    """Claim a sequential call of ``tool`` for the process ``runner``, or say what to do instead.

    ``waits`` says that the call must take a lock first; its body is not entered before :func:`enter_write` allows it.
    """
    turn, now = snapshot.turn, snapshot.now
    call = find(snapshot.calls, call_id)
    if call is None or turn.status.is_final or turn.cancel_requested or call.status is CallStatus.PLANNED:
        return _answer(Go.IGNORE, turn)
    if call.status is CallStatus.ENDED:
        return _answer(Go.IGNORE if _stops_chain(call) else Go.PASS, turn)
    if (call.tool, call.attempt) != (tool, attempt) or _is_blocked(call, snapshot.calls):
        return _answer(Go.IGNORE, turn)
    if call.deadline_at is not None and now > call.deadline_at:
        return _wake(snapshot)
    if call.status is CallStatus.RUNNING:
        return _start_again(snapshot, call, runner=runner, timing=timing, waits=waits)
    return _run(snapshot, call, runner=runner, timing=timing, waits=waits)


def enter_write(snapshot: Snapshot, *, call_id: str, attempt: int, runner: str) -> Decision[float | None]:
    """Let a call that has its lock enter its body.

    Returns how many seconds the body may run. 0: its time is over, and it must not start. ``None``: the call no longer
    belongs to ``runner``.
    """
    turn, now = snapshot.turn, snapshot.now
    call = find(snapshot.calls, call_id)
    if call is None or turn.status.is_final or turn.cancel_requested or call.deadline_at is None:
        return Decision(result=None)
    is_mine = call.status is CallStatus.RUNNING and (call.attempt, call.runner) == (attempt, runner)
    if not is_mine or call.worker is not None:
        return Decision(result=None)
    if now >= call.deadline_at:
        return Decision(result=0.0)
    return decide(snapshot, call.deadline_at - now, calls=(replace(call, worker=runner, started_at=now),))


def hand_in(
    snapshot: Snapshot, *, call_id: str, attempt: int, runner: str, outcome: ToolOutcome | None
) -> Decision[HandedIn]:
    """Record how a call ended, if it still belongs to ``runner``; otherwise the result is late and changes nothing.

    An ``outcome`` of ``None`` means that the body was cut short, because its time ended or the turn was cancelled.
    """
    call = find(snapshot.calls, call_id)
    if call is None:
        return late(snapshot, call_id=call_id, attempt=attempt).with_result(HandedIn(go=Go.IGNORE))
    ending = _cut_short(call, snapshot.turn) if outcome is None else outcome
    ended = _end(snapshot, call, attempt=attempt, runner=runner, outcome=ending)
    return ended.with_result(HandedIn(go=ended.result, outcome=None if ended.result is Go.IGNORE else ending))


def _cut_short(call: Call, turn: Turn) -> ToolOutcome:
    """The outcome of a body that was cut short, or the recorded one if only the answer to its commit was lost."""
    if turn.status.is_final:
        return unknown(call, "did not end in time")
    if call.outcome is not None:
        return call.outcome
    return unknown(call, STOPPED_BECAUSE[StopCause.CANCELLED] if turn.cancel_requested else "did not end in time")


def _end(snapshot: Snapshot, call: Call, *, attempt: int, runner: str, outcome: ToolOutcome) -> Decision[Go]:
    turn, now = snapshot.turn, snapshot.now
    is_mine = (call.attempt, call.runner) == (attempt, runner)
    if not is_mine or call.status is not CallStatus.RUNNING or turn.status.is_final:
        if is_mine and call.outcome == outcome:
            return Decision(result=Go.WAKE if is_doubt(call) else Go.PASS)
        return late(snapshot, call_id=call.call_id, attempt=attempt)
    ended = end_call(call, outcome, now=now)
    if is_doubt(ended):
        calls = end_with_doubt(call, outcome, snapshot.calls, now=now)
        return decide(snapshot, Go.WAKE, turn=_nudged(turn, now), calls=calls)
    return decide(snapshot, Go.PASS, turn=replace(turn, looks=0) if turn.looks else None, calls=(ended,))


def late(snapshot: Snapshot, *, call_id: str, attempt: int) -> Decision[Go]:
    """Report a result that came too late: with an event if the turn still runs, and nothing else."""
    if snapshot.turn.status.is_final:
        return Decision(result=Go.IGNORE)
    event = EventDraft(type="tool.late", data={"call_id": call_id, "attempt": attempt})
    return Decision(result=Go.IGNORE, events=(event,))


def hand_back(snapshot: Snapshot, *, call_id: str, attempt: int, runner: str) -> Decision[None]:
    """Undo a start whose body was not entered. Its message is used up: a coordinator must look and send another."""
    turn, call = snapshot.turn, find(snapshot.calls, call_id)
    if call is None or call.status is not CallStatus.RUNNING or (call.attempt, call.runner) != (attempt, runner):
        return Decision(result=None)
    back = replace(unstart(call), deadline_at=turn.deadline_at)
    soon = snapshot.now if turn.wake_at is None else min(turn.wake_at, snapshot.now)
    return Decision(result=None, turn=replace(turn, looks=0, wake_at=soon), calls=(back,))


def find(calls: Iterable[Call], call_id: str) -> Call | None:
    """The call with that id, if it exists."""
    return next((call for call in calls if call.call_id == call_id), None)


def _answer(go: Go, turn: Turn) -> Decision[Started]:
    return Decision(result=Started(go=go, turn=turn))


def _nudged(turn: Turn, now: float) -> Turn:
    return replace(turn, wakes=turn.wakes + 1, wake_at=now)


def _wake(snapshot: Snapshot, calls: tuple[Call, ...] = ()) -> Decision[Started]:
    turn = _nudged(snapshot.turn, snapshot.now)
    return decide(snapshot, Started(go=Go.WAKE, turn=turn), turn=turn, calls=calls)


def _stops_chain(call: Call) -> bool:
    """Whether later calls of the plan must not run, because this one ended in doubt or never ran."""
    outcome = call.outcome
    return is_doubt(call) or (isinstance(outcome, ToolDenied) and outcome.reason is DenialReason.NOT_RUN)


def _is_blocked(call: Call, plan: Iterable[Call]) -> bool:
    """Whether an earlier call of the same message is open or in doubt."""
    earlier = (each for each in plan if each.step == call.step and each.position < call.position)
    return any(each.status is not CallStatus.ENDED or is_doubt(each) for each in earlier)


def _start_again(snapshot: Snapshot, call: Call, *, runner: str, timing: Timing, waits: bool) -> Decision[Started]:
    """Answer a second message for a running call: either its twin is still alive, or its process died."""
    turn, now = snapshot.turn, snapshot.now
    if call.lease_until is not None and call.lease_until > now:
        sooner = call.lease_until if turn.wake_at is None else min(turn.wake_at, call.lease_until)
        changed = None if turn.wake_at == sooner else replace(turn, wake_at=sooner)
        return Decision(result=Started(go=Go.IGNORE, turn=turn), turn=changed)
    after = lost_write(call, snapshot.calls, now=now, timing=timing)
    if after[0].status is CallStatus.ENDED:
        return _wake(snapshot, after)
    return _run(snapshot, after[0], runner=runner, timing=timing, waits=waits)


def _run(snapshot: Snapshot, call: Call, *, runner: str, timing: Timing, waits: bool) -> Decision[Started]:
    turn, now = snapshot.turn, snapshot.now
    deadline_at = min(turn.deadline_at, now + call.timeout_s)
    running = replace(
        call,
        status=CallStatus.RUNNING,
        deadline_at=deadline_at,
        lease_until=now + timing.lease_ttl_s,
        runner=runner,
        worker=None if waits else runner,
        started_at=call.started_at if waits else now,
        finished_at=None,
    )
    started = Started(go=Go.RUN, turn=turn, call=running, remaining_s=deadline_at - now, turn_s=turn.deadline_at - now)
    return decide(snapshot, started, calls=(running,))
