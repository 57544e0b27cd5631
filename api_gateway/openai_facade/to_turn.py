"""Requests of OpenAI's clients, translated into requests for turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from api_gateway.openai_facade.requests import ChatRequest, InputMessage, InputReasoning, Item, ResponseRequest
from api_gateway.problems import invalid_at
from api_gateway.requests.turns import BudgetRequest, TurnRequest

SYSTEM_ROLES: Final = ("system", "developer")
TRANSCRIPT: Final = "The conversation before this message, oldest first, one JSON object a line:"


def turn_of_chat(asked: ChatRequest) -> TurnRequest:
    """A turn that gets the conversation so far as a transcript.

    Raises:
        Problem: 422 ``invalid_request``: the last message is not the user's.
    """
    return _turn(asked, asked.messages, "messages")


def turn_of_response(asked: ResponseRequest, session_id: str | None) -> TurnRequest:
    """A turn of a session.

    Args:
        asked: The request.
        session_id: The session of the previous response; ``None`` if the request names none.

    Raises:
        Problem: 422 ``invalid_request``: the last item is not the user's message.
    """
    budget = None if asked.max_tool_calls is None else BudgetRequest(max_tool_calls=asked.max_tool_calls)
    turn = _turn(asked, asked.input, "input", instructions=asked.instructions)
    return turn.model_copy(update={"session_id": session_id or asked.conversation, "budget": budget})


def _turn(
    asked: ChatRequest | ResponseRequest, items: Sequence[Item], place: str, *, instructions: str | None = None
) -> TurnRequest:
    *past, last = items
    if not (isinstance(last, InputMessage) and last.role == "user" and last.content is not None):
        raise invalid_at(["body", place], "must end with the user's message, which is what the agent is asked")
    orders = [item.content for item in past if isinstance(item, InputMessage) and item.role in SYSTEM_ROLES]
    said = [item for item in past if _is_said(item)]
    return TurnRequest(
        agent=asked.model,
        input=last.content,
        metadata=asked.metadata,
        parallel=asked.parallel_tool_calls,
        system_prompt_override="\n\n".join(text for text in (instructions, *orders) if text) or None,
        skill_context=_transcript(said),
    )


def _is_said(item: Item) -> bool:
    if isinstance(item, InputMessage):
        return item.role not in SYSTEM_ROLES
    return not isinstance(item, InputReasoning)


def _transcript(said: Sequence[Item]) -> str | None:
    """The conversation as JSON lines: they have no line breaks, so no text in it can look like its end."""
    lines = [json.dumps(item.model_dump(exclude_none=True), ensure_ascii=False) for item in said]
    return "\n".join((TRANSCRIPT, *lines)) if lines else None
