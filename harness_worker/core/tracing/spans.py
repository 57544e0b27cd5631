"""An ended turn as a trace, made from its journal alone.

Names follow the semantic conventions for generative AI (opentelemetry.io, "gen-ai"); names that these do not define
begin with ``harness.``. Nobody's text is exported unless that is enabled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from harness_worker.core.doubt import LOCK_MISSED
from harness_worker.core.outcomes import (
    OUTCOME_UNKNOWN,
    WORKER_LOST,
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolOutcome,
    ToolTimeout,
)
from harness_worker.core.records import Call, Turn
from harness_worker.core.tracing.chats import chats_of
from harness_worker.core.tracing.content import content_of_call, content_of_turn
from harness_worker.core.tracing.journal import Journal, bounds, common, known, model_of, nanoseconds, trace_id, within
from harness_worker.core.tracing.trace import Attributes, Span, SpanEvent, Trace, call_span_id, caller_of, turn_span_id
from harness_worker.wire import TurnStatus

OTHER: Final = "_OTHER"
"""The name given to a tool that does not exist, because a name that a model makes up is the model's text."""

_NOTED: Final[Mapping[str, tuple[str, ...]]] = {
    "turn.started": (),
    "turn.redelivered": ("step",),
    "turn.requires_action": (),
    "approval.requested": ("call_id",),
    "approval.resolved": ("call_id", "decision"),
    "tool.late": ("call_id", "attempt"),
    "budget.warning": ("name", "used", "limit"),
}
"""The journal's events that the turn's span has, too, with the fields that each keeps."""

_AN_ID: Final = re.compile("[A-Za-z0-9_-]{1,64}")

_FAILURES: Final = (WORKER_LOST, LOCK_MISSED)
"""The words with which failures reported by the harness itself begin."""


def trace_of(journal: Journal) -> Trace:
    """The turn's span, and below it one for each model call and each tool call, but none for a fork's copied steps."""
    own = (call for call in journal.calls if call.step >= journal.turn.first_step)
    return (_turn(journal), *chats_of(journal), *(_call(journal, call) for call in own))


def _turn(journal: Journal) -> Span:
    turn = journal.turn
    start, end = bounds(turn)
    caller = caller_of(turn.traceparent)
    return Span(
        name=f"invoke_agent {turn.agent}",
        kind="internal",
        trace_id=trace_id(turn),
        span_id=turn_span_id(turn.id),
        parent_id=None if caller is None else caller.span_id,
        start_ns=nanoseconds(start),
        end_ns=nanoseconds(end),
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": turn.agent,
            **model_of(journal),
            **common(turn),
            **_facts(turn),
            **({} if journal.messages is None else content_of_turn(turn)),
        },
        error=str(turn.stop_reason) if turn.status is TurnStatus.FAILED else None,
        events=tuple(_noted(journal)),
        caller=caller,
    )


def _facts(turn: Turn) -> Attributes:
    """How the turn went. Its tokens have other names than a model call's, so that they are not counted twice."""
    used = turn.used
    told: dict[str, object] = {
        "harness.tenant": turn.tenant,
        "harness.priority": turn.priority,
        "harness.status": turn.status.value,
        "harness.stop_reason": turn.stop_reason.value if turn.stop_reason is not None else None,
        "harness.decision": turn.decision.value if turn.decision is not None else None,
        "harness.forked_from": turn.forked_from,
        "harness.queued_s": None if turn.started_at is None else round(turn.started_at - turn.created_at, 6),
        "harness.steps": used.steps,
        "harness.tool_calls": used.tool_calls,
        "harness.reflections": used.reflections,
        "harness.input_tokens": used.prompt_tokens,
        "harness.output_tokens": used.output_tokens,
        "harness.dollars": used.dollars,
    }
    return known(told)


def _noted(journal: Journal) -> Iterator[SpanEvent]:
    for event in journal.events:
        names = _NOTED.get(event.type)
        if names is not None:
            attributes = known({f"harness.{name}": event.data.get(name) for name in names})
            yield SpanEvent(name=event.type, at_ns=nanoseconds(event.at), attributes=attributes)


def _call(journal: Journal, call: Call) -> Span:
    turn, tool = journal.turn, _tool_name(journal, call)
    end = call.finished_at if call.finished_at is not None else bounds(turn)[1]
    told: dict[str, object] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": _use_id(journal, call),
        "harness.call_id": call.call_id,
        "harness.step": call.step,
        "harness.wave": call.wave,
        "harness.attempt": call.attempt,
        "harness.effect": call.effect.value if call.effect is not None else None,
        "harness.outcome": type(call.outcome).__name__ if call.outcome is not None else None,
    }
    texts: Attributes = {} if journal.messages is None else content_of_call(call)
    attributes = {**known(told), **common(turn), **texts}
    start_ns, end_ns = within(turn, end if call.started_at is None else call.started_at, end)
    return Span(
        name=f"execute_tool {tool}",
        kind="internal",
        trace_id=trace_id(turn),
        span_id=call_span_id(turn.id, call.call_id, call.attempt),
        parent_id=turn_span_id(turn.id),
        start_ns=start_ns,
        end_ns=end_ns,
        attributes=attributes,
        error=_failure(call.outcome),
    )


def _tool_name(journal: Journal, call: Call) -> str:
    is_one = call.was_sent or (journal.agent is not None and call.tool in journal.agent.tool_names)
    return call.tool if is_one or journal.messages is not None else OTHER


def _use_id(journal: Journal, call: Call) -> str | None:
    """The model's own id for the call, which may be any text."""
    return call.tool_use_id if journal.messages is not None or _AN_ID.fullmatch(call.tool_use_id) else None


def _failure(outcome: ToolOutcome | None) -> str | None:
    match outcome:
        case None | ToolExecutionResult() | ToolArtifactReference():
            return None
        case ToolTimeout():
            return "timeout"
        case ToolDenied():
            return outcome.reason.value
        case ToolFailure():
            said = next((word for word in _FAILURES if outcome.error.startswith(f"{word}:")), None)
            return said or (OUTCOME_UNKNOWN if outcome.in_doubt else "tool_error")
        case _:
            assert_never(outcome)
