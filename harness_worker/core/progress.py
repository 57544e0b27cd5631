"""What comes next for a turn none of whose calls is open: another segment, another step, or its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from harness_worker.core.collect_reads import ReadReport
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.ending import (
    collected,
    end_turn,
    result_message,
    step_completed,
    stop_calls,
    terminal_event,
)
from harness_worker.core.lifecycle import decide, end_call, merge
from harness_worker.core.records import Call, CallStatus, EventDraft, Message, Turn
from harness_worker.core.timing import Timing
from harness_worker.core.visits import StopCause, Visit, look_in, nudged, release
from harness_worker.wire import StopReason, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Zombie:
    """Somebody else drives the turn now, or it is over: change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The turn is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The turn was released with these calls to send, after the gate knows them.

    Args:
        turn: The turn as released.
        calls: Reads to send side by side, or sequential calls to send as a chain; may be empty.
        knock: Whether somebody knocked during the visit: publish another ``advance``.
        remaining_s: What is left of the turn's time, in seconds.
    """

    turn: Turn
    calls: tuple[Call, ...]
    knock: bool
    remaining_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """The turn is still held, and it is the model's word."""

    turn: Turn


Next: TypeAlias = Zombie | Finished | Dispatch | AskModel


def stop_turn(
    snapshot: Snapshot, turn: Turn, calls: Sequence[Call], cause: StopCause, reports: Mapping[str, ReadReport]
) -> Decision[Next]:
    """End the turn now: one result a call, nothing left to wait for."""
    calls = stop_calls(calls, cause, reports, now=snapshot.now)
    cancelled = cause is StopCause.CANCELLED
    status = TurnStatus.CANCELLED if cancelled else TurnStatus.INCOMPLETE
    reason = StopReason.CANCELLED if cancelled else StopReason.DEADLINE
    ended = end_turn(turn, status, reason, now=snapshot.now)
    return close_step(snapshot, ended, calls, result=Finished(), last=(terminal_event(ended),))


def go_on(snapshot: Snapshot, visit: Visit, turn: Turn, calls: Sequence[Call], timing: Timing) -> Decision[Next]:
    """The next segment if the plan has one, else the next step, else the end.

    Args:
        snapshot: What was there.
        visit: The hold on the turn.
        turn: The turn as changed so far.
        calls: Its calls as changed so far; none is open.
        timing: The protocol's times.
    """
    denied, segment = next_segment(calls, now=snapshot.now)
    calls = merge(calls, denied)
    if segment:
        return _dispatch(snapshot, visit, turn, calls, segment, timing)
    reason = exhausted(turn, now=snapshot.now)
    if reason is None:
        started = EventDraft(type="step.started", data={"step": turn.step})
        going = replace(turn, version=turn.version + 1, looks=0)
        return close_step(snapshot, going, calls, result=AskModel(turn=going), last=(started,))
    ended = end_turn(turn, TurnStatus.INCOMPLETE, reason, now=snapshot.now)
    return close_step(snapshot, ended, calls, result=Finished(), last=(terminal_event(ended),))


def exhausted(turn: Turn, *, now: float) -> StopReason | None:
    """Why no further step may be claimed, if so."""
    budget, used = turn.budget, turn.used
    if now > turn.deadline_at:
        return StopReason.DEADLINE
    if used.steps >= budget.max_steps:
        return StopReason.MAX_STEPS
    over_tokens = budget.max_tokens is not None and used.tokens >= budget.max_tokens
    return StopReason.BUDGET if over_tokens or (used.dollars > 0 and used.dollars >= budget.max_dollars) else None


def next_segment(calls: Sequence[Call], *, now: float) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """The calls of the plan that end denied now that their wave has come, and those to send.

    A segment is one wave of reads, or a run of sequential calls. A denied call ends the run before it.
    """
    waiting = sorted((c for c in calls if c.status is CallStatus.PLANNED), key=lambda c: (c.step, c.position))
    denied: list[Call] = []
    chain: list[Call] = []
    for _, members in groupby(waiting, key=lambda c: (c.step, c.wave)):
        wave = tuple(members)
        runnable = tuple(c for c in wave if c.outcome is None)
        if chain and (len(runnable) < len(wave) or runnable[0].is_read):
            break
        denied += [end_call(c, c.outcome, now=now) for c in wave if c.outcome is not None]
        if runnable and runnable[0].is_read:
            return tuple(denied), runnable
        chain += runnable
    return tuple(denied), tuple(chain)


def _dispatch(
    snapshot: Snapshot, visit: Visit, turn: Turn, calls: Sequence[Call], segment: tuple[Call, ...], timing: Timing
) -> Decision[Next]:
    sent = tuple(replace(c, status=CallStatus.PENDING, deadline_at=turn.deadline_at) for c in segment)
    calls = merge(calls, sent)
    fresh = replace(turn, looks=0)
    wake_at = look_in(fresh, tuple(calls), now=snapshot.now, timing=timing)
    released = release(visit, fresh, wake_at=wake_at, now=snapshot.now)
    remaining_s = turn.deadline_at - snapshot.now
    result = Dispatch(turn=released, calls=sent, knock=nudged(visit, turn), remaining_s=remaining_s)
    return decide(snapshot, result, turn=released, calls=_changed(snapshot, calls))


def close_step(
    snapshot: Snapshot, turn: Turn, calls: Sequence[Call], *, result: Next, last: tuple[EventDraft, ...]
) -> Decision[Next]:
    """Append the step's results, close it if it is open, and say what follows."""
    messages: tuple[Message, ...] = result_message(calls)
    calls = merge(calls, collected(calls))
    spoke_now = turn.step > snapshot.turn.step
    over = isinstance(result, Finished) or bool(messages) or spoke_now
    closed = (step_completed(_open_step(snapshot, turn)),) if over else ()
    decision = decide(snapshot, result, turn=turn, calls=_changed(snapshot, calls), last=closed + last)
    return replace(decision, messages=messages)


def _open_step(snapshot: Snapshot, turn: Turn) -> int:
    """The step that was started and not closed: the last one that spoke, else the one about to."""
    spoke_now = turn.step > snapshot.turn.step
    results_due = any(not call.collected for call in snapshot.calls)
    return turn.step - 1 if spoke_now or results_due else turn.step


def _changed(snapshot: Snapshot, calls: Sequence[Call]) -> tuple[Call, ...]:
    known = {call.call_id: call for call in snapshot.calls}
    return tuple(call for call in calls if known.get(call.call_id) is not call)
