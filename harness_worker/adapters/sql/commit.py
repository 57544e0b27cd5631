"""What a decision writes: only what changed, with the numbers of its messages and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from harness_worker.adapters.sql.pipeline import Write
from harness_worker.adapters.sql.rows import changed_columns, columns_of
from harness_worker.adapters.sql.statements import (
    ADD_CALL,
    ADD_EVENT,
    ADD_MESSAGE,
    CHANGE_CALL,
    CHANGE_TURN,
    Statements,
)
from harness_worker.core.decisions import Artifact, Decision, Snapshot
from harness_worker.core.records import Call
from harness_worker.ports import Event


def writes_of(statements: Statements, snapshot: Snapshot, decision: Decision[Any]) -> tuple[list[Write], list[Event]]:
    """What has to be written to make ``decision`` of ``snapshot``, and its events as they will stand."""
    events = _numbered_events(snapshot, decision)
    writes: list[Write] = [
        *_turn_writes(snapshot, decision),
        *_call_writes(snapshot, decision.calls),
        (ADD_MESSAGE, _message_rows(snapshot, decision)),
        (ADD_EVENT, [event_row(event) for event in events]),
        (statements.add_artifact, [_artifact_row(artifact, snapshot.now) for artifact in decision.artifacts]),
    ]
    return writes, events


def event_row(event: Event) -> dict[str, Any]:
    """The columns of an event."""
    return {"turn_id": event.turn_id, "seq": event.seq, "type": event.type, "at": event.at, "data": dict(event.data)}


def _numbered_events(snapshot: Snapshot, decision: Decision[Any]) -> list[Event]:
    turn = snapshot.turn
    return [
        Event(turn_id=turn.id, seq=seq, type=draft.type, at=snapshot.now, data=draft.data)
        for seq, draft in enumerate(decision.events, turn.last_seq + 1)
    ]


def _turn_writes(snapshot: Snapshot, decision: Decision[Any]) -> list[Write]:
    turn = snapshot.turn
    changes = changed_columns(turn, decision.turn) if decision.turn else {}
    if decision.events:
        changes["last_seq"] = turn.last_seq + len(decision.events)
    if decision.messages:
        changes["message_count"] = turn.message_count + len(decision.messages)
    return [(CHANGE_TURN, [{"this_turn": turn.id, **changes}])] if changes else []


def _call_writes(snapshot: Snapshot, calls: Iterable[Call]) -> list[Write]:
    known = {(call.step, call.position): call for call in snapshot.calls}
    added: list[dict[str, Any]] = []
    changed: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for call in calls:
        old = known.get((call.step, call.position))
        if old is None:
            added.append(columns_of(call))
        elif changes := changed_columns(old, call):
            changed[tuple(changes)].append({**_call_key(old), **changes})
    return [*((CHANGE_CALL, rows) for rows in changed.values()), (ADD_CALL, added)]


def _call_key(call: Call) -> dict[str, Any]:
    return {"this_turn": call.turn_id, "this_step": call.step, "this_position": call.position}


def _message_rows(snapshot: Snapshot, decision: Decision[Any]) -> list[dict[str, Any]]:
    turn = snapshot.turn
    return [
        {"turn_id": turn.id, "position": position, "role": message.role, "content": message.content}
        for position, message in enumerate(decision.messages, turn.message_count)
    ]


def _artifact_row(artifact: Artifact, now: float) -> dict[str, Any]:
    row = columns_of(artifact)
    expires_at = now + row.pop("ttl_s")
    return {**row, "created_at": now, "expires_at": expires_at}
