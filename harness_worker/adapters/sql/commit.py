"""Writes a decision: only what changed, with the numbers of its messages and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Executable

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Writes decisions on one kind of database."""

    statements: Statements

    def write(self, connection: Connection, snapshot: Snapshot, decision: Decision[Any]) -> list[Event]:
        """Write ``decision`` over ``snapshot`` and return its events as they will stand."""
        events = _numbered_events(snapshot, decision)
        _write_turn(connection, snapshot, decision)
        _write_calls(connection, snapshot, decision.calls)
        _execute(connection, ADD_MESSAGE, _message_rows(snapshot, decision))
        _execute(connection, ADD_EVENT, [event_row(event) for event in events])
        _execute(connection, self.statements.add_artifact, [_artifact_row(a, snapshot.now) for a in decision.artifacts])
        return events


def event_row(event: Event) -> dict[str, Any]:
    """The columns of an event."""
    return {"turn_id": event.turn_id, "seq": event.seq, "type": event.type, "at": event.at, "data": dict(event.data)}


def _numbered_events(snapshot: Snapshot, decision: Decision[Any]) -> list[Event]:
    turn = snapshot.turn
    return [
        Event(turn_id=turn.id, seq=seq, type=draft.type, at=snapshot.now, data=draft.data)
        for seq, draft in enumerate(decision.events, turn.last_seq + 1)
    ]


def _write_turn(connection: Connection, snapshot: Snapshot, decision: Decision[Any]) -> None:
    old = snapshot.turn
    counted = replace(
        decision.turn or old,
        last_seq=old.last_seq + len(decision.events),
        message_count=old.message_count + len(decision.messages),
    )
    changes = changed_columns(old, counted)
    if changes:
        connection.execute(CHANGE_TURN, {"this_turn": old.id, **changes})


def _write_calls(connection: Connection, snapshot: Snapshot, calls: Iterable[Call]) -> None:
    known = {(call.step, call.position): call for call in snapshot.calls}
    added: list[dict[str, Any]] = []
    changed: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for call in calls:
        old = known.get((call.step, call.position))
        if old is None:
            added.append(columns_of(call))
        elif changes := changed_columns(old, call):
            changed[tuple(changes)].append({**_call_key(old), **changes})
    for rows in changed.values():
        _execute(connection, CHANGE_CALL, rows)
    _execute(connection, ADD_CALL, added)


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


def _execute(connection: Connection, statement: Executable, rows: list[Any]) -> None:
    if rows:
        connection.execute(statement, rows if len(rows) > 1 else rows[0])
