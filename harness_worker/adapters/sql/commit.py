"""The rows that a decision changes: only columns that differ, and messages and events with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from sqlalchemy import Insert

from harness_worker.adapters.sql.child_turns import STOP_CHILDREN, STOP_GRANDCHILDREN, WAKE_PARENT
from harness_worker.adapters.sql.pipeline import Write
from harness_worker.adapters.sql.rows import changed_columns, columns_of
from harness_worker.adapters.sql.statements import (
    ADD_CALL,
    ADD_EVENT,
    ADD_MEMORY,
    ADD_MESSAGE,
    ADD_SCORE,
    ADD_SESSION,
    ADD_TURN,
    CHANGE_CALL,
    CHANGE_TURN,
)
from harness_worker.core.children import awaited_by, leaves_children
from harness_worker.core.decisions import Artifact, Decision, Snapshot
from harness_worker.core.memory.memories import Remembered, scope_of
from harness_worker.core.queueing import first_message, queued_event
from harness_worker.core.records import Call, Event, Message, Turn
from harness_worker.core.scoring.scores import due
from harness_worker.core.visits import frees_session
from harness_worker.sessions import WAKE_NEXT

Row: TypeAlias = Mapping[str, Any]

CALL_KEY = ("step", "position")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What one commit writes.

    Args:
        turn_id: The turn.
        turn: The turn's columns that change. If only other rows change it has an unchanged column, because every commit
            writes the turn's row.
        calls: Calls that change: their ``CALL_KEY`` and every column in which any of them differs.
        new_calls: Calls to add, with all columns.
        sessions: Sessions of children to add, with all columns.
        children: Turns to add, with all columns.
        messages: Messages to append, with all columns, including those of children.
        events: Events to append, the turn's own first.
        artifacts: Artifacts to add, with all columns.
        scores: Scores that are due from now on.
        memories: Memories to add, with all columns.
        freed: The place in its session after which the next turn is woken, if this ends a turn that another waits for.
        left: The turn whose children and grandchildren are asked to stop, if this ends a turn that has some.
        awaited: The parent to wake, if this turn ends, or begins or ends a wait for a person.
    """

    turn_id: str
    turn: Row
    calls: Sequence[Row]
    new_calls: Sequence[Row]
    sessions: Sequence[Row]
    children: Sequence[Row]
    messages: Sequence[Row]
    events: Sequence[Event]
    artifacts: Sequence[Row]
    scores: Sequence[Row]
    memories: Sequence[Row]
    freed: Row
    left: Row
    awaited: Row

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.turn)


def changes_of(snapshot: Snapshot, decision: Decision[Any], *, artifact_ttl_s: float) -> Changes:
    """What must be written for a ``decision`` made on ``snapshot``; artifacts expire after ``artifact_ttl_s``."""
    calls, new_calls = _calls(snapshot, decision.calls)
    left = leaves_children(snapshot, decision.turn)
    awaited = awaited_by(snapshot.turn, decision.turn)
    others = calls or new_calls or decision.artifacts or decision.memories
    return Changes(
        turn_id=snapshot.turn.id,
        turn=_turn(snapshot, decision) or ({"last_seq": snapshot.turn.last_seq} if others else {}),
        calls=calls,
        new_calls=new_calls,
        sessions=[_session(child) for child in decision.children],
        children=[columns_of(child) for child in decision.children],
        messages=[*_messages(snapshot, decision), *map(_first_message_row, decision.children)],
        events=[*_events(snapshot, decision), *map(queued_event, decision.children)],
        artifacts=[_artifact(artifact, snapshot.now, artifact_ttl_s) for artifact in decision.artifacts],
        scores=[asdict(due(snapshot.turn.id, judge, now=snapshot.now)) for judge in decision.judges],
        memories=memory_rows(Remembered(turn=snapshot.turn, memories=decision.memories), snapshot.now),
        freed=_freed(snapshot, decision),
        left={"of_parent": snapshot.turn.id} if left else {},
        awaited={} if awaited is None else {"parent": awaited},
    )


def writes_of(changes: Changes, add_artifact: Insert) -> list[Write]:
    """The statements that write ``changes`` while the turn is locked; ``add_artifact`` is the dialect's."""
    turn = [{"this_turn": changes.turn_id, **changes.turn}] if changes.turn else []
    return [
        (CHANGE_TURN, turn),
        (CHANGE_CALL, [_addressed(changes.turn_id, call) for call in changes.calls]),
        (ADD_CALL, changes.new_calls),
        (ADD_SESSION, changes.sessions),
        (ADD_TURN, changes.children),
        (ADD_MESSAGE, changes.messages),
        (ADD_EVENT, [event_row(event) for event in changes.events]),
        (add_artifact, changes.artifacts),
        (ADD_SCORE, changes.scores),
        (ADD_MEMORY, changes.memories),
        (WAKE_NEXT, [changes.freed] if changes.freed else []),
        (STOP_CHILDREN, [changes.left] if changes.left else []),
        (STOP_GRANDCHILDREN, [changes.left] if changes.left else []),
        (WAKE_PARENT, [changes.awaited] if changes.awaited else []),
    ]


def event_row(event: Event) -> dict[str, Any]:
    """The columns of an event."""
    return {"turn_id": event.turn_id, "seq": event.seq, "type": event.type, "at": event.at, "data": dict(event.data)}


def message_row(turn_id: str, message: Message) -> Row:
    """The columns of a message."""
    return {"turn_id": turn_id, "position": message.position, "role": message.role, "content": message.content}


def memory_rows(found: Remembered, now: float) -> list[Row]:
    """The columns of the memories of a turn."""
    turn = found.turn
    whose = {"turn_id": turn.id, "tenant": turn.tenant, "scope": scope_of(turn), "created_at": now}
    return [{**whose, "position": position, **columns_of(memory)} for position, memory in enumerate(found.memories)]


def _session(child: Turn) -> Row:
    return {"tenant": child.tenant, "id": child.session_id, "turns": child.number, "created_at": child.created_at}


def _first_message_row(child: Turn) -> Row:
    return message_row(child.id, first_message(child))


def _freed(snapshot: Snapshot, decision: Decision[Any]) -> Row:
    turn = snapshot.turn
    if not frees_session(turn, decision.turn):
        return {}
    return {"of_tenant": turn.tenant, "of_session": turn.session_id, "after_number": turn.number}


def _turn(snapshot: Snapshot, decision: Decision[Any]) -> dict[str, Any]:
    turn = snapshot.turn
    changes = changed_columns(turn, decision.turn) if decision.turn else {}
    if decision.events:
        changes["last_seq"] = turn.last_seq + len(decision.events)
    if decision.messages:
        changes["message_count"] = turn.message_count + len(decision.messages)
    return changes


def _calls(snapshot: Snapshot, calls: Iterable[Call]) -> tuple[Sequence[Row], Sequence[Row]]:
    known = {(call.step, call.position): call for call in snapshot.calls}
    added = [columns_of(call) for call in calls if (call.step, call.position) not in known]
    old_and_new = [(old, call) for call in calls if (old := known.get((call.step, call.position))) and old != call]
    names = {name for old, new in old_and_new for name in changed_columns(old, new)}
    return [columns_of(new, (*CALL_KEY, *sorted(names))) for _, new in old_and_new], added


def _addressed(turn_id: str, call: Row) -> Row:
    key = {f"this_{name}": call[name] for name in CALL_KEY}
    return {"this_turn": turn_id, **key, **{name: value for name, value in call.items() if name not in CALL_KEY}}


def _messages(snapshot: Snapshot, decision: Decision[Any]) -> list[Row]:
    turn = snapshot.turn
    return [
        message_row(turn.id, replace(message, position=position))
        for position, message in enumerate(decision.messages, turn.message_count)
    ]


def _events(snapshot: Snapshot, decision: Decision[Any]) -> list[Event]:
    turn = snapshot.turn
    return [
        Event(turn_id=turn.id, seq=seq, type=draft.type, at=snapshot.now, data=draft.data)
        for seq, draft in enumerate(decision.events, turn.last_seq + 1)
    ]


def _artifact(artifact: Artifact, now: float, ttl_s: float) -> dict[str, Any]:
    return {**columns_of(artifact), "created_at": now, "expires_at": now + ttl_s}
