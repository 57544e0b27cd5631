"""How a new turn is stored: with its times, its user's message, and the event that says that it is queued."""

from __future__ import annotations

from dataclasses import replace

from harness_worker.core.records import Event, Message, Turn


def queued_at(turn: Turn, now: float) -> Turn:
    """The turn as it is stored at that time; its first message and event are counted."""
    deadline_at = now + turn.budget.timeout_s
    return replace(turn, created_at=now, wake_at=now, deadline_at=deadline_at, last_seq=1, message_count=1)


def first_message(turn: Turn) -> Message:
    """What its user said, as its first message."""
    return Message(role="user", content=turn.input, position=0)


def queued_event(turn: Turn) -> Event:
    """Its first event."""
    data = {"agent": turn.agent, "session_id": turn.session_id}
    return Event(turn_id=turn.id, seq=1, type="turn.queued", at=turn.created_at, data=data)
