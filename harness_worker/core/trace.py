"""What a trace is made of, in OpenTelemetry's terms, and the ids of its spans.

The ids follow from the turn's own: whoever tells a turn tells the same spans, and a span can be named as a parent
before it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, TypeAlias

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, Attribute]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened within a span.

    Args:
        name: What.
        at_ns: When, in nanoseconds since the epoch.
        attributes: More of it.
    """

    name: str
    at_ns: int
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation, with its begin and its end.

    Args:
        name: As the semantic conventions for generative AI have it.
        kind: ``client`` asks another system.
        trace_id: 128 bits, not 0.
        span_id: 64 bits, not 0.
        parent_id: The span that it is a part of; ``None``: the first of its trace.
        start_ns: In nanoseconds since the epoch.
        end_ns: The same, not before ``start_ns``.
        attributes: What is known of it.
        error: The class of error that it ended with, if it did.
        events: What happened within it, in order.
    """

    name: str
    kind: Literal["internal", "client"]
    trace_id: int
    span_id: int
    parent_id: int | None
    start_ns: int
    end_ns: int
    attributes: Attributes
    error: str | None = None
    events: tuple[SpanEvent, ...] = field(default=())


Trace: TypeAlias = tuple[Span, ...]
"""The spans of one turn; the first is the turn's own."""


def trace_id_of(turn_id: str) -> int:
    """The id of a turn's trace."""
    return _number(f"trace:{turn_id}", 16)


def turn_span_id(turn_id: str) -> int:
    """The id of the turn's own span."""
    return _number(f"turn:{turn_id}", 8)


def chat_span_id(turn_id: str, step: int) -> int:
    """The id of the span of a step's model call."""
    return _number(f"chat:{turn_id}:{step}", 8)


def aside_span_id(turn_id: str, seq: int) -> int:
    """The id of the span of a model call beside the steps, by the event that tells of it."""
    return _number(f"aside:{turn_id}:{seq}", 8)


def call_span_id(turn_id: str, call_id: str, attempt: int) -> int:
    """The id of the span of one attempt of a tool call."""
    return _number(f"call:{turn_id}:{call_id}:{attempt}", 8)


def _number(text: str, size_bytes: int) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:size_bytes], "big") or 1
