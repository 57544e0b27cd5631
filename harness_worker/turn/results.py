"""A finished turn as its caller sees it: the fields of the HTTP API's Turn and Call, as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness_worker.core.approvals import waiting
from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.by_name import ByName, Entries
from harness_worker.core.outcomes import content_of, is_error
from harness_worker.core.records import Call, CallStatus, Message, Turn
from harness_worker.core.sources.citations import Citation
from harness_worker.wire import StopReason, Strategy, TurnStatus, child_turn_id, rfc3339

RequiredAction: TypeAlias = Mapping[str, Any]
"""A call that waits for a person: ``call_id``, ``tool``, ``arguments``, ``expires_at``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult(ByName):
    """One tool call. ``outcome`` is the class name of its outcome; times are RFC 3339 UTC.

    ``child_turn_id`` is the id of the turn that answers a call of another agent, once the call was sent.
    """

    call_id: str
    tool_use_id: str
    tool: str
    effect: str | None
    step: int
    wave: int
    position: int
    arguments: Mapping[str, Any]
    outcome: str | None
    content: str
    is_error: bool
    attempt: int
    worker: str | None
    child_turn_id: str | None = None
    started_at: str | None
    finished_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """One turn. ``messages`` is its own history, in Anthropic's format; times are RFC 3339 UTC.

    ``usage`` includes that of the turns that it asked for. ``context`` is what the model was sent before the user's
    words, such as memories and documents.
    """

    id: str
    status: TurnStatus
    stop_reason: StopReason | None
    agent: str
    session_id: str
    parent: Mapping[str, str] | None = None
    input: str
    output_text: str
    citations: tuple[Citation, ...]
    usage: Usage
    budget: BudgetLimits
    calls: tuple[CallResult, ...]
    required_actions: tuple[RequiredAction, ...]
    error: Mapping[str, str] | None
    decision: Strategy | None
    metadata: Mapping[str, str]
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    context: tuple[str, ...]
    messages: tuple[Mapping[str, Any], ...]


def turn_result(turn: Turn, calls: Sequence[Call], messages: Sequence[Message]) -> TurnResult:
    """The rows of a turn as its caller sees them."""
    return TurnResult(
        id=turn.id,
        status=turn.status,
        stop_reason=turn.stop_reason,
        agent=turn.agent,
        session_id=turn.session_id,
        parent=_parent(turn),
        input=turn.input,
        output_text=turn.output_text,
        citations=turn.citations,
        usage=turn.spent,
        budget=turn.budget,
        calls=tuple(map(_call_result, calls)),
        required_actions=() if turn.status.is_final else tuple(map(required_action, waiting(calls))),
        error=Entries(turn.error) if turn.error is not None else None,
        decision=turn.decision,
        metadata=turn.metadata,
        created_at=rfc3339(turn.created_at),
        started_at=rfc3339(turn.started_at),
        finished_at=rfc3339(turn.finished_at),
        context=turn.preparation.context if turn.preparation is not None else (),
        messages=tuple({"role": message.role, "content": message.content} for message in messages),
    )


def _parent(turn: Turn) -> Mapping[str, str] | None:
    if turn.parent_id is None:
        return None
    return {"turn_id": turn.parent_id, "call_id": turn.parent_call_id or ""}


def required_action(call: Call) -> RequiredAction:
    """A call that waits for a person, as that person sees it."""
    expires_at = rfc3339(call.approval.expires_at) if call.approval is not None else None
    arguments = dict(call.arguments)
    return Entries(call_id=call.call_id, tool=call.tool, arguments=arguments, expires_at=expires_at)


def _call_result(call: Call) -> CallResult:
    outcome = call.outcome if call.status is CallStatus.ENDED else None
    return CallResult(
        call_id=call.call_id,
        tool_use_id=call.tool_use_id,
        tool=call.tool,
        effect=call.effect.value if call.effect is not None else None,
        step=call.step,
        wave=call.wave,
        position=call.position,
        arguments=call.arguments,
        outcome=type(outcome).__name__ if outcome is not None else None,
        content=content_of(outcome) if outcome is not None else "",
        is_error=outcome is not None and is_error(outcome),
        attempt=call.attempt,
        worker=call.worker,
        child_turn_id=child_turn_id(call.turn_id, call.call_id) if call.is_delegated and call.was_sent else None,
        started_at=rfc3339(call.started_at),
        finished_at=rfc3339(call.finished_at),
    )
