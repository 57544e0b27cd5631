"""What comes next for a turn without open calls: another segment, another step, or its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from harness_worker.core.approvals import is_undecided
from harness_worker.core.budget import Usage
from harness_worker.core.children import cut
from harness_worker.core.collect_reads import NO_REPORTS, ReadReport
from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.delegating import children_of, started_events
from harness_worker.core.ending import (
    STOPPED_BECAUSE,
    end_turn,
    result_message,
    stop_calls,
    terminal_event,
    with_results_told,
)
from harness_worker.core.gates import MODEL_FLOOR_S, floor_of
from harness_worker.core.lifecycle import changed_from, decide, merge, preceded_by
from harness_worker.core.outcomes import ToolDenied
from harness_worker.core.parking import park
from harness_worker.core.records import Call, CallStatus, EventDraft, Turn
from harness_worker.core.replay import after_step
from harness_worker.core.segments import next_segment
from harness_worker.core.visits import StopCause, Visit, begins_steps, look_in, nudged, release
from harness_worker.wire import StopReason, TurnStatus

EQUAL_STEPS = 3
"""A turn makes no progress if this many steps in a row ask for the same and get the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The turn is over.

    Args:
        followed: Whether a later turn of its session waited for its end.
        left: The calls that were cut short and may still be running.
    """

    followed: bool
    left: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The turn was released; these calls must be sent, reads only after the gate knows them.

    Args:
        turn: The turn as released.
        calls: Reads to send side by side, sequential calls to send as a chain, or calls of agents, whose turns exist
            and need a wake-up; may be empty.
        nudge: Whether somebody nudged the turn during the visit, so that another ``advance`` must be published.
        remaining_s: The turn's remaining time, in seconds.
    """

    turn: Turn
    calls: tuple[Call, ...]
    nudge: bool
    remaining_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """The turn is still held, and the model must be asked next."""

    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHooks:
    """The turn is still held, and its hooks must be asked about the calls that come next.

    Args:
        turn: The turn.
        calls: The calls to ask about.
        known: All its calls.
    """

    turn: Turn
    calls: tuple[Call, ...]
    known: tuple[Call, ...]


Next: TypeAlias = Finished | Dispatch | AskModel | AskHooks


def stop_turn(
    snapshot: Snapshot,
    turn: Turn,
    calls: Sequence[Call],
    cause: StopCause,
    reports: Mapping[str, ReadReport] = NO_REPORTS,
) -> Decision[Finished]:
    """End the turn now, with one result for each call and nothing left to wait for."""
    cancelled = cause is StopCause.CANCELLED
    status = TurnStatus.CANCELLED if cancelled else TurnStatus.INCOMPLETE
    reason = StopReason.CANCELLED if cancelled else StopReason.DEADLINE
    stopped = partial(end_turn, status=status, reason=reason, now=snapshot.now)
    return cut_turn(snapshot, turn, calls, cause, reports, end=stopped)


def cut_turn(
    snapshot: Snapshot,
    turn: Turn,
    calls: Sequence[Call],
    cause: StopCause,
    reports: Mapping[str, ReadReport],
    *,
    end: Callable[[Turn], Turn],
) -> Decision[Finished]:
    """End the turn, whatever is still running; ``end`` gives it its final state."""
    settled = cut(snapshot, turn, calls, STOPPED_BECAUSE[cause])
    calls = stop_calls(settled.calls, cause, reports, now=snapshot.now)
    ended = end(remembering(settled.turn, calls))
    decision = preceded_by(settled.events, close_turn(snapshot, ended, calls))
    return decision.with_result(replace(decision.result, left=tuple(call for call in snapshot.calls if call.is_open)))


def abandon(snapshot: Snapshot) -> Decision[Finished | None]:
    """Cancel a turn that its only driver gives up."""
    if snapshot.turn.status.is_final:
        return Decision(result=None)
    return stop_turn(snapshot, snapshot.turn, snapshot.calls, StopCause.CANCELLED)


def go_on(snapshot: Snapshot, visit: Visit, turn: Turn, calls: Sequence[Call]) -> Decision[Next]:
    """Go on: send the next segment of the plan, or wait for an approval, or take the next step, or end the turn.

    Args:
        snapshot: The snapshot that was read.
        visit: The hold on the turn.
        turn: The turn as changed so far.
        calls: Its calls as changed so far; none is open.
    """
    segment = next_segment(turn, calls, now=snapshot.now, apart=visit.apart, tools=visit.tools)
    calls = merge(calls, segment.denied)
    if segment.sent:
        return _dispatch(snapshot, visit, turn, calls, segment.sent)
    undecided = tuple(filter(is_undecided, calls))
    if asked := segment.asked or _asked_before_persons(calls, undecided):
        return _ask_hooks(snapshot, turn, calls, asked)
    if undecided:
        return _park(snapshot, visit, turn, calls)
    turn = remembering(turn, calls)
    reason = exhausted(turn, now=snapshot.now)
    if reason is not None:
        return run_out(snapshot, turn, calls, reason)
    started = EventDraft(type="step.started", data={"step": turn.step})
    going = replace(turn, looks=0)
    return _close_step(snapshot, going, calls, result=AskModel(turn=going), last=started)


def run_out(snapshot: Snapshot, turn: Turn, calls: Sequence[Call], reason: StopReason) -> Decision[Finished]:
    """End the turn because something that a further step needs has run out."""
    return close_turn(snapshot, end_turn(turn, TurnStatus.INCOMPLETE, reason, now=snapshot.now), calls)


def close_turn(snapshot: Snapshot, ended: Turn, calls: Sequence[Call]) -> Decision[Finished]:
    """The commit that ends the turn, with the results of its open step and its terminal event."""
    return _close_step(snapshot, ended, calls, result=Finished(followed=ended.followed), last=terminal_event(ended))


def in_next_visit(decision: Decision[Next], visit: Visit, *, now: float) -> Decision[Next]:
    """The decision, where the next model call is left to a new visit, because a visit's time is limited."""
    if not isinstance(decision.result, AskModel):
        return decision
    released = release(visit, decision.result.turn, wake_at=now, now=now)
    return replace(decision, turn=released, result=Dispatch(turn=released, calls=(), nudge=True, remaining_s=0.0))


def exhausted(turn: Turn, *, now: float) -> StopReason | None:
    """Why no further step may be started, if so. Tokens, dollars and floors never forbid the first model call."""
    budget, used, remaining_s = turn.budget, turn.used, turn.deadline_at - now
    if remaining_s < 0:
        return StopReason.DEADLINE
    if used.steps >= budget.max_steps:
        return StopReason.MAX_STEPS
    if used.steps > 0 and budget.is_spent(turn.spent):
        return StopReason.BUDGET
    if turn.recall.repeats >= EQUAL_STEPS:
        return StopReason.NO_PROGRESS
    too_late = used.steps > 0 and remaining_s < floor_of(turn, MODEL_FLOOR_S)
    return StopReason.DEADLINE if too_late else None


def remembering(turn: Turn, calls: Sequence[Call]) -> Turn:
    """The turn at the end of a step: it remembers what its calls mean for later ones; calls that never ran are free."""
    due = [call for call in calls if not call.collected]
    unused = sum(call.was_sent and isinstance(call.outcome, ToolDenied) for call in due)
    used = replace(turn.used, tool_calls=turn.used.tool_calls - unused)
    return replace(turn, used=used, recall=after_step(turn.recall, due))


def _asked_before_persons(calls: Sequence[Call], undecided: Sequence[Call]) -> tuple[Call, ...]:
    """The undecided calls that hooks must be asked about first, and the rest of their waves, which go with them."""
    waves = {(call.step, call.wave) for call in undecided if call.hooked}
    return tuple(
        call for call in calls if call.hooked and call.status is CallStatus.PLANNED and (call.step, call.wave) in waves
    )


def _ask_hooks(snapshot: Snapshot, turn: Turn, calls: Sequence[Call], asked: tuple[Call, ...]) -> Decision[Next]:
    asking = replace(turn, looks=0)
    asks = AskHooks(turn=asking, calls=asked, known=tuple(calls))
    return decide(snapshot, asks, turn=asking, calls=changed_from(snapshot, calls))


def _dispatch(
    snapshot: Snapshot, visit: Visit, turn: Turn, calls: Sequence[Call], segment: tuple[Call, ...]
) -> Decision[Next]:
    sent = tuple(replace(c, status=_sent_as(c), deadline_at=turn.deadline_at) for c in segment)
    children = children_of(turn, sent, now=snapshot.now)
    calls = merge(calls, sent)
    fresh = replace(turn, looks=0, used=turn.used.plus(Usage(tool_calls=len(sent))))
    wake_at = look_in(fresh, tuple(calls), now=snapshot.now, timing=visit.timing)
    released = release(visit, fresh, wake_at=wake_at, now=snapshot.now)
    remaining_s = turn.deadline_at - snapshot.now
    result = Dispatch(turn=released, calls=sent, nudge=nudged(visit, turn), remaining_s=remaining_s)
    told = started_events(children)
    decision = decide(snapshot, result, turn=released, calls=changed_from(snapshot, calls), last=told)
    return replace(decision, children=children)


def _sent_as(call: Call) -> CallStatus:
    """The status of a call once sent. A call of an agent runs at once, because its turn now exists."""
    return CallStatus.RUNNING if call.is_delegated else CallStatus.PENDING


def _park(snapshot: Snapshot, visit: Visit, turn: Turn, calls: Sequence[Call]) -> Decision[Next]:
    parked = park(visit, turn, calls, now=snapshot.now, approval_s=visit.timing.approval_s)
    result = Dispatch(turn=parked.turn, calls=(), nudge=parked.look_again, remaining_s=0.0)
    changed = changed_from(snapshot, parked.calls)
    return decide(snapshot, result, turn=parked.turn, calls=changed, last=parked.events)


def _close_step(snapshot: Snapshot, turn: Turn, calls: Sequence[Call], *, result: T, last: EventDraft) -> Decision[T]:
    """Close the open step: append its results, and emit its events and ``last``."""
    completed = EventDraft(type="step.completed", data={"step": _open_step(snapshot)})
    told = (completed, last) if begins_steps(turn) else (last,)
    changed = changed_from(snapshot, merge(calls, with_results_told(calls)))
    decision = decide(snapshot, result, turn=turn, calls=changed, last=told)
    return replace(decision, messages=result_message(calls))


def _open_step(snapshot: Snapshot) -> int:
    """The step whose results are due; without open results, the step in which the model will speak."""
    return next((call.step for call in snapshot.calls if not call.collected), snapshot.turn.step)
