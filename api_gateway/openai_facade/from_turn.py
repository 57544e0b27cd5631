"""Turns as OpenAI's clients read them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from api_gateway.openai_facade.answers import (
    AgentResponse,
    Choice,
    Completion,
    CompletionMessage,
    CompletionUsage,
    FinishReason,
    ItemStatus,
    OutputCall,
    OutputCallOutput,
    OutputItem,
    OutputMessage,
    OutputText,
    ResponseError,
    ResponseStatus,
    ResponseUsage,
)
from api_gateway.problems import NO_RETRY, Problem
from api_gateway.turns.answers import Call, RequiredAction, Turn, Usage
from api_gateway.turns.store import Terms
from harness_worker.wire import StopReason, TurnStatus

LONGEST: Final = 512
"""The longest value of the metadata, in characters."""

ANSWERED: Final = (TurnStatus.COMPLETED, TurnStatus.INCOMPLETE)
_STATUS: Final[Mapping[TurnStatus, ResponseStatus]] = {
    TurnStatus.QUEUED: "queued",
    TurnStatus.RUNNING: "in_progress",
    TurnStatus.REQUIRES_ACTION: "in_progress",
    TurnStatus.COMPLETED: "completed",
    TurnStatus.INCOMPLETE: "incomplete",
    TurnStatus.FAILED: "failed",
    TurnStatus.CANCELLED: "cancelled",
}
_CUT_REPLY: Final = (StopReason.MAX_TOKENS, StopReason.REFUSAL)
"""Stop reasons of incomplete turns whose text is the model's; for every other reason the harness writes the text."""

_REASON: Final = {StopReason.MAX_TOKENS: "max_output_tokens", StopReason.REFUSAL: "content_filter"}


def response_of(turn: Turn, terms: Terms) -> AgentResponse:
    """A turn, and how it was asked for, as a response."""
    question = _question(turn)
    asks = {"requires_action": question[:LONGEST]} if question else {}
    completed_at = turn.finished_at if turn.status is TurnStatus.COMPLETED else None
    return AgentResponse(
        id=turn.id,
        created_at=seconds(turn.created_at),
        completed_at=None if completed_at is None else seconds(completed_at),
        status=_STATUS[turn.status],
        model=turn.agent,
        output=output_of(turn),
        error=_error(turn),
        incomplete_details=_incomplete(turn),
        usage=_response_usage(turn.usage),
        conversation={"id": turn.session_id},
        metadata={**turn.metadata, **asks},
        previous_response_id=terms.follows,
        instructions=terms.system,
        parallel_tool_calls=terms.parallel,
        max_tool_calls=turn.budget.max_tool_calls,
    )


def output_of(turn: Turn) -> list[OutputItem]:
    """Each ended call with its output, in the order in which streams report them, then what the agent said."""
    calls = [item for call in ended_calls(turn.calls, 0) for item in items_of(turn.id, call)]
    if not turn.output_text:
        return calls
    return [
        *calls,
        message_of(message_id(turn.id, answering_step(turn)), turn.output_text, message_status(turn.status)),
    ]


def ended_calls(calls: Sequence[Call], told: int) -> Sequence[Call]:
    """The calls after the first ``told``, up to the first one that has not ended."""
    going_on = next((place for place, call in enumerate(calls) if call.outcome is None), len(calls))
    return calls[told:going_on]


def items_of(turn_id: str, call: Call) -> list[OutputItem]:
    """The items of an ended call: the call and its output."""
    asked = OutputCall(
        id=f"fc_{turn_id}_{call.call_id}",
        call_id=call.call_id,
        name=call.tool,
        arguments=json.dumps(call.arguments, ensure_ascii=False),
    )
    output = OutputCallOutput(id=f"fco_{turn_id}_{call.call_id}", call_id=call.call_id, output=call.content)
    return [asked, output]


def answering_step(turn: Turn) -> int | None:
    """The step that said the turn's text; ``None`` if the text joins several, or says why the turn was stopped."""
    if turn.status is not TurnStatus.COMPLETED and turn.stop_reason not in _CUT_REPLY:
        return None
    first = 0 if turn.forked_from is None else turn.forked_from.step
    return first + turn.usage.steps - 1


def message_id(turn_id: str, step: int | None) -> str:
    """The id of the message of a step's text, or of the turn's own text if that is no step's."""
    return f"msg_{turn_id}" if step is None else f"msg_{turn_id}_{step}"


def message_of(item_id: str, text: str, status: ItemStatus) -> OutputMessage:
    """A message; one that has only begun has no text yet."""
    content = [OutputText(text=text)] if text else []
    return OutputMessage(id=item_id, status=status, content=content)


def message_status(status: TurnStatus) -> ItemStatus:
    """The status of the message of a turn's text."""
    if not status.is_final:
        return "in_progress"
    return "completed" if status is TurnStatus.COMPLETED else "incomplete"


def completion_of(turn: Turn) -> Completion:
    """A turn as a chat completion.

    Raises:
        Problem: It has no answer: 502 ``turn_failed``, 409 ``approval_required``, 504 ``turn_unfinished``.
    """
    if turn.status not in ANSWERED:
        raise without_answer(turn)
    message = CompletionMessage(content=turn.output_text)
    return Completion(
        id=turn.id,
        created=seconds(turn.created_at),
        model=turn.agent,
        choices=[Choice(message=message, finish_reason=finish_reason(turn))],
        usage=completion_usage(turn.usage),
    )


def finish_reason(turn: Turn) -> FinishReason:
    """Why the answer ends where it does, in OpenAI's terms."""
    if turn.status is TurnStatus.COMPLETED:
        return "stop"
    return "content_filter" if turn.stop_reason is StopReason.REFUSAL else "length"


def completion_usage(usage: Usage) -> CompletionUsage:
    """What a turn has used, in the format of a chat completion."""
    read = _tokens_read(usage)
    return CompletionUsage(
        prompt_tokens=read,
        prompt_tokens_details=_of_caches(usage),
        completion_tokens=usage.output_tokens,
        total_tokens=read + usage.output_tokens,
    )


def without_answer(turn: Turn) -> Problem:
    """The error for a turn that has no answer, or none yet."""
    if question := _question(turn):
        return Problem("approval_required", f"turn {turn.id} {question}", headers=NO_RETRY)
    if not turn.status.is_final:
        return unfinished(turn.id)
    why = f"{turn.error.code}: {turn.error.message}" if turn.error else "somebody cancelled it"
    return Problem("turn_failed", f"turn {turn.id} {turn.status}: {why}", headers=NO_RETRY)


def unfinished(turn_id: str) -> Problem:
    """The error for a turn whose client has waited long enough."""
    detail = f"turn {turn_id} goes on, and its answer comes later: read it with responses.retrieve({turn_id!r})"
    return Problem("turn_unfinished", detail, headers=NO_RETRY)


def seconds(at: str) -> int:
    """An RFC 3339 time as seconds since the epoch."""
    return int(datetime.fromisoformat(at).timestamp())


def _question(turn: Turn) -> str:
    """What a turn waits for, itself or in turns below it, and where to answer; empty if it waits for nothing."""
    asked = {turn.id: list(turn.required_actions)}
    for action in turn.subagent_actions:
        asked.setdefault(action.turn_id, []).append(action)
    wanted = [
        f"answer with POST /v1/turns/{turn_id}/inputs; it asks to run {_named(actions)}"
        for turn_id, actions in asked.items()
        if actions
    ]
    return f"waits for approval: {'; '.join(wanted)}" if wanted else ""


def _named(actions: Sequence[RequiredAction]) -> str:
    return ", ".join(f"{action.tool} ({action.call_id})" for action in actions)


def _error(turn: Turn) -> ResponseError | None:
    return None if turn.error is None else ResponseError(message=f"{turn.error.code}: {turn.error.message}")


def _incomplete(turn: Turn) -> dict[str, str] | None:
    if turn.status is not TurnStatus.INCOMPLETE or turn.stop_reason is None:
        return None
    return {"reason": _REASON.get(turn.stop_reason, turn.stop_reason.value)}


def _response_usage(usage: Usage) -> ResponseUsage:
    read = _tokens_read(usage)
    return ResponseUsage(
        input_tokens=read,
        input_tokens_details=_of_caches(usage),
        output_tokens=usage.output_tokens,
        total_tokens=read + usage.output_tokens,
    )


def _tokens_read(usage: Usage) -> int:
    """All tokens that the models have read; OpenAI counts cached ones among them."""
    return usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def _of_caches(usage: Usage) -> dict[str, int]:
    """Those of the tokens read that came from a cache, or were written to one."""
    return {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
