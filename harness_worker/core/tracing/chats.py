"""Model calls as spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness_worker.core.records import Event
from harness_worker.core.tracing.content import content_of_aside, content_of_step
from harness_worker.core.tracing.journal import Journal, bounds, common, known, model_of, trace_id, within
from harness_worker.core.tracing.trace import Attributes, Span, aside_span_id, chat_span_id, turn_span_id
from harness_worker.wire import StopReason

STEP: Final = "model.completed"
ASIDES: Final[Mapping[str, str]] = {"reflection.completed": "reflection", "compaction.completed": "compaction"}
UNANSWERED: Final = frozenset(
    {
        StopReason.MODEL_ERROR,
        StopReason.SCRIPT_EXHAUSTED,
        StopReason.DEADLINE,
        StopReason.CANCELLED,
        StopReason.INTERNAL,
    }
)
"""The ends of a turn whose last model call got no answer."""


def chats_of(journal: Journal) -> Iterator[Span]:
    """A span for each model call, from when it became due (or the previous call ended) until the model had answered."""
    since: float | None = None
    for event in journal.events:
        if event.type == "step.started":
            since = event.at
        elif event.type == STEP:
            yield _step(journal, event, since)
            since = None
        elif event.type in ASIDES:
            yield _aside(journal, event, since)
            since = event.at
    if since is not None and journal.turn.stop_reason in UNANSWERED:
        yield _unanswered(journal, since)


def _step(journal: Journal, event: Event, since: float | None) -> Span:
    step, stop_reason = int(event.data["step"]), str(event.data.get("stop_reason"))
    told: dict[str, object] = {
        "gen_ai.response.finish_reasons": (stop_reason,),
        "harness.step": step,
        "harness.request": "step",
        "harness.prefix_hash": event.data.get("prefix_hash"),
        "harness.cache_break": event.data.get("cache_break"),
    }
    texts: Attributes = {} if journal.messages is None else content_of_step(journal.messages, step, stop_reason)
    attributes = {**known(told), **_usage(event.data), **texts}
    return _chat(journal, chat_span_id(journal.turn.id, step), since, event.at, attributes)


def _aside(journal: Journal, event: Event, since: float | None) -> Span:
    error = "no_answer" if event.data.get("is_stub") else None
    told: dict[str, object] = {
        "harness.step": event.data.get("step"),
        "harness.request": ASIDES[event.type],
        "harness.cache_break": event.data.get("cache_break"),
    }
    texts: Attributes = (
        {} if journal.messages is None else content_of_aside(str(event.data.get("text")), error or "stop")
    )
    attributes = {**known(told), **_usage(event.data), **texts}
    return _chat(journal, aside_span_id(journal.turn.id, event.seq), since, event.at, attributes, error)


def _unanswered(journal: Journal, since: float) -> Span:
    turn = journal.turn
    attributes: Attributes = {"harness.step": turn.step, "harness.request": "step"}
    if journal.messages is not None:
        attributes = {**attributes, **content_of_step(journal.messages, turn.step, "error")}
    end = bounds(turn)[1]
    return _chat(journal, chat_span_id(turn.id, turn.step), since, end, attributes, str(turn.stop_reason))


def _chat(
    journal: Journal, span_id: int, since: float | None, until: float, attributes: Attributes, error: str | None = None
) -> Span:
    turn, model = journal.turn, model_of(journal)
    start_ns, end_ns = within(turn, until if since is None else since, until)
    return Span(
        name=" ".join(("chat", str(model.get("gen_ai.request.model", "")))).strip(),
        kind="client",
        trace_id=trace_id(turn),
        span_id=span_id,
        parent_id=turn_span_id(turn.id),
        start_ns=start_ns,
        end_ns=end_ns,
        attributes={"gen_ai.operation.name": "chat", **model, **common(turn), **attributes},
        error=error,
    )


def _usage(data: Mapping[str, Any]) -> Attributes:
    """The token counts; by the conventions ``input_tokens`` includes cached tokens."""
    usage: Mapping[str, Any] = data.get("usage") or {}
    read, written = (int(usage.get(f"cache_{what}_tokens", 0)) for what in ("read", "write"))
    return {
        "gen_ai.usage.input_tokens": int(usage.get("input_tokens", 0)) + read + written,
        "gen_ai.usage.output_tokens": int(usage.get("output_tokens", 0)),
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": written,
        "harness.dollars": float(usage.get("dollars", 0.0)),
    }
