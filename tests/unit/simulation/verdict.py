"""What must hold of a turn's whole journal once it has ended, or should have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from harness_worker.core.doubt import is_doubt
from harness_worker.core.outcomes import (
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolTimeout,
    content_of,
    is_error,
)
from harness_worker.core.records import Call, CallStatus, Event, Message, Turn
from tests.unit.memory_store import MemoryTurnStore
from tests.unit.simulation.gates_verdict import gate_breaches
from tests.unit.simulation.laws import Laws

TERMINAL = ("turn.completed", "turn.incomplete", "turn.failed", "turn.cancelled")
PAST_DEADLINE_S = 30.0
"""A turn ends at the latest so long after its deadline: its last visit's time, and a look of the reconciler."""


def breaches(store: MemoryTurnStore, turn_id: str, laws: Laws) -> Iterator[str]:
    """Everything wrong with the journal of a turn."""
    turn, calls = store.load(turn_id) or (None, ())
    if turn is None or turn.finished_at is None:
        yield f"never ended: {turn}"
        return
    if turn.finished_at > turn.deadline_at + PAST_DEADLINE_S:
        yield f"ended {turn.finished_at - turn.deadline_at:.1f} s after its deadline"
    events = [event for event in store.events if event.turn_id == turn_id]
    yield from _of_events(turn, events)
    yield from _of_waves(events, calls)
    yield from _of_messages(store.history(turn_id), calls)
    yield from gate_breaches(turn, calls)
    for call in calls:
        yield from _of_outcome(call, laws)
    references = {c.outcome.artifact_id for c in calls if isinstance(c.outcome, ToolArtifactReference)}
    kept = {artifact.id for artifact in store.artifacts.values() if artifact.turn_id == turn_id}
    if references != kept:
        yield f"artifacts {sorted(kept)} for references {sorted(references)}"


def _of_events(turn: Turn, events: Sequence[Event]) -> Iterator[str]:
    if [event.seq for event in events] != list(range(1, turn.last_seq + 1)):
        yield f"gaps in seqs: {[event.seq for event in events]}"
    terminal = [event.type for event in events if event.type in TERMINAL]
    if terminal != [f"turn.{turn.status.value}"] or events[-1].type not in TERMINAL:
        yield f"terminal events {terminal}, the last event {events[-1].type}, status {turn.status}"
    if [event.type for event in events[:1]] != ["turn.queued"]:
        yield "turn.queued is not the first event"
    if turn.started_at is None and any(event.type in ("turn.started", "step.started") for event in events):
        yield "a turn that never started is told as started"
    depth = 0
    for event in events:
        depth += {"step.started": 1, "step.completed": -1}.get(event.type, 0)
        if depth not in (0, 1) or (
            event.type == "step.completed" and event.data["step"] != _last_started(events, event)
        ):
            yield f"steps do not nest at seq {event.seq}"
    if depth != 0:
        yield "a step was never closed"


def _last_started(events: Sequence[Event], until: Event) -> object:
    steps = [event.data["step"] for event in events if event.type == "step.started" and event.seq < until.seq]
    return steps[-1] if steps else None


def _of_waves(events: Sequence[Event], calls: Sequence[Call]) -> Iterator[str]:
    """``wave.started``, one ``tool.completed`` a call, ``wave.completed``; one wave after the other."""
    seen: dict[tuple[int, int], list[str]] = defaultdict(list)
    waves = {call.call_id: (call.step, call.wave) for call in calls}
    order: list[tuple[int, int]] = []
    for event in events:
        if event.type.startswith("wave."):
            key = (event.data["step"], event.data["wave"])
        elif event.type == "tool.completed":
            key = waves[event.data["call_id"]]
        else:
            continue
        seen[key].append(event.type if event.type.startswith("wave.") else event.data["call_id"])
        order.append(key)
    if order != sorted(order):
        yield f"waves overlap: {order}"
    for key in set(waves.values()):
        members = sorted(call_id for call_id, wave in waves.items() if wave == key)
        kinds = seen[key]
        if not (
            kinds and kinds[0] == "wave.started" and kinds[-1] == "wave.completed" and sorted(kinds[1:-1]) == members
        ):
            yield f"wave {key} of {members} told as {kinds}"


def _of_messages(history: Sequence[Message], calls: Sequence[Call]) -> Iterator[str]:
    """Exactly one result a call, right after the message that asked, saying what the journal says."""
    if [message.position for message in history] != list(range(len(history))):
        yield "positions of messages have gaps"
    asked = [
        block["id"] for m in history if m.role == "assistant" for block in m.content if block["type"] == "tool_use"
    ]
    if len(asked) != len(calls):
        yield f"{len(calls)} calls for {len(asked)} tool_use blocks"
    step = -1
    for before, message in zip((None, *history), history, strict=False):
        if message.role == "assistant":
            step += 1
            wanted = [call for call in calls if call.step == step]
            results = _results_after(history, message)
            if results != [_block(call) for call in wanted]:
                yield f"step {step}: results {results} for {[_block(call) for call in wanted]}"
        elif before is not None and before.role == "user":
            yield "two user messages in a row"


def _results_after(history: Sequence[Message], message: Message) -> list[Any]:
    after = history[message.position + 1 :][:1]
    return list(after[0].content) if after and after[0].role == "user" else []


def _block(call: Call) -> dict[str, Any]:
    outcome = call.outcome
    said = {"type": "tool_result", "tool_use_id": call.tool_use_id, "content": content_of(outcome) if outcome else None}
    return {**said, "is_error": True} if outcome is not None and is_error(outcome) else said


def _of_outcome(call: Call, laws: Laws) -> Iterator[str]:
    if call.is_delegated and not isinstance(call.outcome, ToolDenied):  # see families_verdict.py
        if not call.collected:
            yield f"{call.call_id} has no result: {call}"
        return
    outcome, bodies = call.outcome, [n for (call_id, _), n in laws.entered_bodies.items() if call_id == call.call_id]
    if outcome is None or call.status is not CallStatus.ENDED or not call.collected:
        yield f"{call.call_id} has no outcome: {call}"
    if isinstance(outcome, ToolDenied) and bodies:
        yield f"{call.call_id} is told as denied ({outcome.reason}) but ran"
    if isinstance(outcome, ToolExecutionResult) and f"{call.call_id}#" not in outcome.output:
        yield f"{call.call_id} has the output of another call: {outcome.output}"
    if isinstance(outcome, ToolExecutionResult) and not laws.effects[call.call_id]:
        yield f"{call.call_id} is told as done but had no effect"
    if isinstance(outcome, ToolTimeout) and not call.is_read:
        yield f"{call.call_id} is a write told as a timeout"
    yield from _of_effort(call, laws, bodies=len(bodies))


def _of_effort(call: Call, laws: Laws, *, bodies: int) -> Iterator[str]:
    laws.met[_kind(call)] += 1
    if is_doubt(call) and not laws.effects[call.call_id]:
        laws.met["doubt without an effect"] += 1
    if laws.is_faultless and bodies > 1:
        yield f"{call.call_id} ran again though nothing went wrong"
    if call.attempt > bodies > 0:
        laws.met["attempts that never ran"] += 1


def _kind(call: Call) -> str:
    outcome = call.outcome
    if isinstance(outcome, ToolDenied):
        return f"denied {outcome.reason.value}"
    doubt = "doubt" if is_doubt(call) else type(outcome).__name__
    lost = outcome is not None and content_of(outcome).startswith("worker_lost")
    return f"{'read' if call.is_read else 'write'} {'worker_lost' if lost else doubt}"
