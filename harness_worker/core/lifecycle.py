"""Ending and merging calls, and making the decision with the events that follow from how the calls changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from harness_worker.core.decisions import Artifact, Decision, Snapshot, T
from harness_worker.core.outcomes import ToolArtifactReference, ToolDenied, ToolOutcome, elapsed_ms_of, is_error
from harness_worker.core.records import Call, CallStatus, EventDraft, Turn, in_order
from harness_worker.wire import EventType


def end_call(call: Call, outcome: ToolOutcome, *, now: float) -> Call:
    """The call with its one outcome. A call that has already ended keeps its own; a denied call never started."""
    if call.status is CallStatus.ENDED:
        return call
    if isinstance(outcome, ToolDenied):
        call = replace(call, worker=None, started_at=None)
    finished_at = call.finished_at if call.finished_at is not None else now
    return replace(call, status=CallStatus.ENDED, outcome=outcome, lease_until=None, finished_at=finished_at)


def unstart(call: Call) -> Call:
    """The call without the process that had it, to be sent again."""
    return replace(call, status=CallStatus.PENDING, lease_until=None, runner=None)


def merge(calls: Sequence[Call], changed: Iterable[Call]) -> tuple[Call, ...]:
    """``calls`` with each changed one replaced and new ones appended."""
    latest = {call.call_id: call for call in changed}
    kept = tuple(latest.pop(call.call_id, call) for call in calls)
    return kept + tuple(latest.values())


def changed_from(before: Snapshot, calls: Iterable[Call]) -> tuple[Call, ...]:
    """Those of ``calls`` that differ from the snapshot."""
    known = {call.call_id: call for call in before.calls}
    return tuple(call for call in calls if known.get(call.call_id) is not call)


def decide(
    before: Snapshot,
    result: T,
    *,
    turn: Turn | None = None,
    calls: Iterable[Call] = (),
    last: tuple[EventDraft, ...] = (),
) -> Decision[T]:
    """A decision with the events and artifacts that follow from its calls.

    Args:
        before: The snapshot that was read.
        result: What the caller learns.
        turn: The turn's new state.
        calls: The calls' new states.
        last: Events that come after those of the calls.
    """
    changed = tuple(calls)
    return Decision(
        result=result,
        turn=turn,
        calls=changed,
        events=call_events(before.calls, changed) + last,
        artifacts=tuple(_artifacts(before, changed)),
    )


def preceded_by(events: tuple[EventDraft, ...], decision: Decision[T]) -> Decision[T]:
    """The decision with these events placed before its own."""
    return replace(decision, events=events + decision.events) if events else decision


def call_events(before: Sequence[Call], changed: Sequence[Call]) -> tuple[EventDraft, ...]:
    """The events ``wave.started``, ``tool.completed`` and ``wave.completed`` of a change, in program order."""
    known = {call.call_id: call for call in before}
    after = in_order(merge(before, changed))
    drafts: list[EventDraft] = []
    for _, members in groupby(after, key=lambda call: (call.step, call.wave)):
        drafts += _wave_events(tuple(members), known)
    return tuple(drafts)


def _wave_events(wave: tuple[Call, ...], known: dict[str, Call]) -> list[EventDraft]:
    was = [known[call.call_id] for call in wave if call.call_id in known]
    drafts: list[EventDraft] = []
    if any(map(_started, wave)) and not any(map(_started, was)):
        drafts.append(_wave_event("wave.started", wave))
    ended_before = {call.call_id for call in was if call.status is CallStatus.ENDED}
    ended = [call for call in wave if call.status is CallStatus.ENDED]
    drafts += [_completed(call) for call in ended if call.call_id not in ended_before]
    if len(ended) == len(wave) and len(ended_before) < len(wave):
        drafts.append(_wave_event("wave.completed", wave))
    return drafts


def _started(call: Call) -> bool:
    """Whether this call starts its wave: a read or an agent's turn once sent, another call once its body may start."""
    if call.runs_beside:
        return call.status is not CallStatus.PLANNED
    return call.status is CallStatus.ENDED or call.started_at is not None


def _wave_event(kind: EventType, wave: tuple[Call, ...]) -> EventDraft:
    data = {"step": wave[0].step, "wave": wave[0].wave, "calls": [call.call_id for call in wave]}
    return EventDraft(type=kind, data=data)


def _completed(call: Call) -> EventDraft:
    outcome = call.outcome
    data = {
        "call_id": call.call_id,
        "tool": call.tool,
        "outcome": type(outcome).__name__,
        "is_error": outcome is not None and is_error(outcome),
        "elapsed_ms": elapsed_ms_of(outcome) if outcome is not None else 0.0,
    }
    return EventDraft(type="tool.completed", data=data)


def _artifacts(before: Snapshot, changed: Sequence[Call]) -> Iterable[Artifact]:
    stored = {call.call_id for call in before.calls if call.status is CallStatus.ENDED}
    for call in changed:
        outcome = call.outcome
        if isinstance(outcome, ToolArtifactReference) and call.call_id not in stored:
            yield Artifact(
                id=outcome.artifact_id,
                tenant=before.turn.tenant,
                session_id=before.turn.session_id,
                turn_id=before.turn.id,
                call_id=call.call_id,
                url=outcome.url,
                size_bytes=outcome.size_bytes,
                summary=outcome.summary,
            )
