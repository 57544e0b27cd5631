"""What a trace is made of, in OpenTelemetry's terms, and the ids of its spans.

The ids are derived from the turn's: every process exports the same spans of a turn, and a span can be named as a parent
before it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from harness_worker.wire import TRACEPARENT

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, Attribute]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEvent:
    """Something that happened within a span.

    Args:
        name: What happened.
        at_ns: When, in nanoseconds since the epoch.
        attributes: Details.
    """

    name: str
    at_ns: int
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The span of another system that requested a turn.

    Args:
        trace_id: The id of its trace, to which the turn belongs, too.
        span_id: Its own id.
        is_sampled: Whether its trace is kept.
    """

    trace_id: int
    span_id: int
    is_sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation, with its start and its end.

    Args:
        name: Its name by the semantic conventions for generative AI.
        kind: ``client`` for a request to another system.
        trace_id: 128 bits, not 0.
        span_id: 64 bits, not 0.
        parent_id: The span that it is a part of; ``None`` for the first of its trace.
        start_ns: In nanoseconds since the epoch.
        end_ns: Likewise; not before ``start_ns``.
        attributes: Its attributes.
        error: The class of the error that it ended with, if any.
        events: What happened within it, in order.
        caller: Its parent, if that is a span of another system.
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
    events: tuple[SpanEvent, ...] = ()
    caller: Caller | None = None


Trace: TypeAlias = tuple[Span, ...]
"""The spans of one turn; the first is the turn's own."""


def trace_id_of(turn_id: str, caller: Caller | None = None) -> int:
    """The id of the trace that a turn belongs to: its caller's, if it has one."""
    return _number(f"trace:{turn_id}", 16) if caller is None else caller.trace_id


def caller_of(traceparent: str | None) -> Caller | None:
    """The span that a ``traceparent`` header names, if it is valid."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    if found is None:
        return None
    trace_id, span_id, flags = (int(digits, 16) for digits in found.groups())
    return Caller(trace_id=trace_id, span_id=span_id, is_sampled=bool(flags & 1))


def turn_span_id(turn_id: str) -> int:
    """The id of the turn's own span."""
    return _number(f"turn:{turn_id}", 8)


def chat_span_id(turn_id: str, step: int) -> int:
    """The id of the span of a step's model call."""
    return _number(f"chat:{turn_id}:{step}", 8)


def aside_span_id(turn_id: str, seq: int) -> int:
    """The id of the span of an aside's model call; ``seq`` is that of the event that reports it."""
    return _number(f"aside:{turn_id}:{seq}", 8)


def call_span_id(turn_id: str, call_id: str, attempt: int) -> int:
    """The id of the span of one attempt of a tool call."""
    return _number(f"call:{turn_id}:{call_id}:{attempt}", 8)


def _number(text: str, size_bytes: int) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:size_bytes], "big") or 1
