"""Open calls of agents: what becomes of the turn that waits for their turns, its children (ADR 33).

A child's end is found in its row. Such a call has no lease and is never run again, because a turn survives crashes by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness_worker.core.decisions import Snapshot
from harness_worker.core.doubt import end_with_doubt, is_doubt
from harness_worker.core.lifecycle import end_call, merge
from harness_worker.core.outcomes import OUTCOME_UNKNOWN, ToolExecutionResult, ToolFailure, ToolOutcome
from harness_worker.core.records import Call, EventDraft, Turn
from harness_worker.wire import TurnStatus, child_turn_id

CHILD_GONE: Final = "its turn is not there any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The effect on a turn of what its children did: of their ends, and of the waits for people below it.

    Args:
        turn: The turn, charged with what the children used, and with the waits recorded.
        calls: All its calls.
        events: Events that report the ends, and each wait that is new.
    """

    turn: Turn
    calls: tuple[Call, ...]
    events: tuple[EventDraft, ...]


# --- time


def allowed_until(turn: Turn, calls: Iterable[Call], children: Sequence[Turn], *, now: float) -> float:
    """The turn's deadline, put off by the time that its children waited for people."""
    waits = ((call, child_of(call, children)) for call in open_delegated(calls))
    ends = (call.deadline_at + _waited_s(child, now) for call, child in waits if child and call.deadline_at is not None)
    return max((turn.deadline_at, *ends))


def all_parked(calls: Iterable[Call], children: Sequence[Turn]) -> bool:
    """Whether every open call is a call of an agent that waits for a person."""
    found = [child_of(call, children) for call in calls if call.is_open]
    return bool(found) and all(child is not None and child.parked_at is not None for child in found)


def _waited_s(child: Turn, now: float) -> float:
    """How long it has waited for people. Its deadline was put off by that, and still moves while it waits."""
    if child.status.is_final:
        now = child.finished_at or now
    until = child.deadline_at + (now - child.parked_at if child.parked_at is not None else 0.0)
    return max(0.0, until - child.created_at - child.budget.timeout_s)


# --- end


def open_delegated(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The calls of agents that were sent and have not ended."""
    return tuple(call for call in calls if call.is_delegated and call.is_open)


def child_of(call: Call, children: Iterable[Turn]) -> Turn | None:
    """The call's own turn, if it exists."""
    return next((child for child in children if child.parent_call_id == call.call_id), None)


def take_ended_children(snapshot: Snapshot, turn: Turn, calls: Sequence[Call]) -> Settled:
    """Take the results of children that have ended, and charge the turn for them; other children are left alone."""
    taken = [(call, child_of(call, snapshot.children)) for call in open_delegated(calls)]
    over = [(call, child) for call, child in taken if child is None or child.status.is_final]
    calls = merge(calls, [_ended(call, child, now=snapshot.now) for call, child in over])
    return Settled(
        turn=_charged(turn, (child for _, child in over)),
        calls=merge(calls, _behind_doubt(calls, now=snapshot.now)),
        events=tuple(_finished(call, child) for call, child in over),
    )


def cut(snapshot: Snapshot, turn: Turn, calls: Sequence[Call], why: str) -> Settled:
    """The same for a turn that ends now; what its unfinished children have done so far is unknown."""
    settled = take_ended_children(snapshot, turn, calls)
    left = [(call, child_of(call, snapshot.children)) for call in open_delegated(settled.calls)]
    ended = [_cut_short(call, child, why, now=snapshot.now) for call, child in left]
    charged = _charged(settled.turn, (child for _, child in left))
    return replace(settled, turn=replace(charged, parked_below=()), calls=merge(settled.calls, ended))


def leaves_children(before: Snapshot, after: Turn | None) -> bool:
    """Whether a change ends a turn whose children may still run, so that they must be asked to stop."""
    is_end = after is not None and after.status.is_final and not before.turn.status.is_final
    return is_end and bool(open_delegated(before.calls))


def awaited_by(before: Turn, after: Turn | None) -> str | None:
    """The parent, if it must look: this turn ended, began or ended a wait for a person, or reports a new one below."""
    if before.parent_id is None or after is None or before.status.is_final:
        return None
    is_told = after.status.is_final or (before.parked_at is None) != (after.parked_at is None)
    return before.parent_id if is_told or not set(after.parked_below) <= set(before.parked_below) else None


def _ended(call: Call, child: Turn | None, *, now: float) -> Call:
    if child is None:
        return end_call(call, call.failed(CHILD_GONE), now=now)
    seen = replace(call, started_at=child.started_at, finished_at=child.finished_at)
    return end_call(seen, _doubt(call, child) if _leaves_doubt(child) else _outcome(call, child), now=now)


def _behind_doubt(calls: Sequence[Call], *, now: float) -> tuple[Call, ...]:
    """Calls that never run because a call of an agent ended in doubt; they end once that call's wave is over."""
    doubt = next((call for call in calls if call.is_delegated and not call.collected and is_doubt(call)), None)
    if doubt is None or doubt.outcome is None or open_delegated(calls):
        return ()
    return end_with_doubt(doubt, doubt.outcome, calls, now=now)


def _leaves_doubt(child: Turn) -> bool:
    """Whether writes of it, or of turns below it, ended in doubt without its model having answered knowing that."""
    return child.status is not TurnStatus.COMPLETED and bool(child.recall.doubtful)


def _doubt(call: Call, child: Turn) -> ToolFailure:
    how = f"{child.status.value}: {child.stop_reason}"
    why = "something it did may or may not have happened; its own record tells what"
    error = f"{OUTCOME_UNKNOWN}: {call.tool} was asked and ended ({how}), and {why}"
    return call.failed(error, elapsed_ms=_elapsed_ms(child), in_doubt=True)


def _outcome(call: Call, child: Turn) -> ToolOutcome:
    elapsed_ms = _elapsed_ms(child)
    if child.status in (TurnStatus.COMPLETED, TurnStatus.INCOMPLETE):
        said = f"[incomplete: {child.stop_reason}] " if child.status is TurnStatus.INCOMPLETE else ""
        output = said + child.output_text
        was_coerced = call.was_coerced
        return ToolExecutionResult(
            call_id=call.call_id, tool_name=call.tool, output=output, elapsed_ms=elapsed_ms, was_coerced=was_coerced
        )
    return call.failed(_failure(child), elapsed_ms=elapsed_ms)


def _failure(child: Turn) -> str:
    """The error of a child that failed or was stopped; what it had done stands, and only its journal says what."""
    stands = "; what it had done by then stands" if child.used.tool_calls else ""
    if child.status is TurnStatus.CANCELLED:
        return f"cancelled: {child.agent} was stopped{stands}"
    error = child.error or {}
    return f"{child.agent} failed: {error.get('code', child.stop_reason)}: {error.get('message', '')}{stands}"


def _cut_short(call: Call, child: Turn | None, why: str, *, now: float) -> Call:
    error = f"{OUTCOME_UNKNOWN}: {call.tool} was asked and {why}; what it has done by then stands"
    seen = replace(call, started_at=None if child is None else child.started_at)
    return end_call(seen, call.failed(error, in_doubt=True), now=now)


def _elapsed_ms(child: Turn) -> float:
    if child.started_at is None or child.finished_at is None:
        return 0.0
    return round((child.finished_at - child.started_at) * 1_000, 3)


def _charged(turn: Turn, children: Iterable[Turn | None]) -> Turn:
    """The turn, charged with the children's tokens and dollars; steps and calls count in each turn alone."""
    for child in children:
        if child is not None:
            spent = replace(child.spent, steps=0, tool_calls=0, reflections=0)
            turn = replace(turn, delegated=turn.delegated.plus(spent))
    return turn


def _finished(call: Call, child: Turn | None) -> EventDraft:
    status = None if child is None else child.status.value
    data = {"call_id": call.call_id, "turn_id": child_turn_id(call.turn_id, call.call_id), "status": status}
    return EventDraft(type="subagent.finished", data=data)
