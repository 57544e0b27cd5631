"""What a trace is made from, and what all spans of a turn have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness_worker.core.prompting.prompt import provider_of
from harness_worker.core.records import Call, Event, Message, Turn
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.tracing.trace import Attribute, Attributes, caller_of, trace_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The journal of an ended turn.

    Args:
        turn: The turn.
        calls: Its calls.
        events: Its events, in order.
        agent: Its agent, if it is served here.
        messages: Its messages, if texts are to be exported.
    """

    turn: Turn
    calls: tuple[Call, ...]
    events: tuple[Event, ...]
    agent: AgentSpec | None = None
    messages: tuple[Message, ...] | None = None


def common(turn: Turn) -> Attributes:
    """The attributes that every span of a turn has."""
    return {"gen_ai.conversation.id": turn.session_id, "harness.turn_id": turn.id}


def trace_id(turn: Turn) -> int:
    """The id of the trace that the turn belongs to."""
    return trace_id_of(turn.id, caller_of(turn.traceparent))


def model_of(journal: Journal) -> Attributes:
    """The model, if it is known, as attributes."""
    if journal.agent is None:
        return {}
    model = journal.agent.model
    return {"gen_ai.provider.name": provider_of(model), "gen_ai.request.model": model}


def known(told: Mapping[str, Any]) -> dict[str, Attribute]:
    """Only the attributes that have a value."""
    return {name: value for name, value in told.items() if value is not None}


def bounds(turn: Turn) -> tuple[float, float]:
    """When a turn began and ended, in seconds since the epoch."""
    return turn.created_at, max(turn.created_at, turn.finished_at or turn.created_at)


def within(turn: Turn, start: float, end: float) -> tuple[int, int]:
    """The times of a part of the turn, in nanoseconds, clipped to the turn's because the gate's clock may differ."""
    first, last = bounds(turn)
    until = min(max(end, first), last)
    return nanoseconds(min(max(start, first), until)), nanoseconds(until)


def nanoseconds(at: float) -> int:
    """A time in nanoseconds, as spans need it."""
    return round(at * 1_000_000_000)
