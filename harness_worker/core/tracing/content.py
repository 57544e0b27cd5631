"""Texts of a turn as attributes of spans, exported only where that is enabled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness_worker.core.canonical import compact
from harness_worker.core.outcomes import content_of
from harness_worker.core.prompting.sent import blocks_of
from harness_worker.core.records import Call, Message, Turn
from harness_worker.core.tracing.trace import Attributes

MOST_CHARS: Final = 4_000
"""How much of each text is exported, in characters."""


def content_of_turn(turn: Turn) -> Attributes:
    """The user's words and the answer."""
    asked = {"role": "user", "parts": [_text(turn.input)]}
    answered = {"role": "assistant", "parts": [_text(turn.output_text)], "finish_reason": str(turn.stop_reason)}
    return {"gen_ai.input.messages": compact([asked]), "gen_ai.output.messages": compact([answered])}


def content_of_step(messages: Sequence[Message], step: int, stop_reason: str) -> Attributes:
    """The turn's history before a step, and the model's reply in it.

    Args:
        messages: The turn's own messages.
        step: The step, counted from 0.
        stop_reason: Why the model stopped.
    """
    spoken = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if step >= len(spoken):
        return {"gen_ai.input.messages": compact([_told(message) for message in messages])}
    before, said = messages[: spoken[step]], messages[spoken[step]]
    return {
        "gen_ai.input.messages": compact([_told(message) for message in before]),
        "gen_ai.output.messages": compact([{**_told(said), "finish_reason": stop_reason}]),
    }


def content_of_aside(text: str, stop_reason: str) -> Attributes:
    """What the model said in an aside."""
    said = {"role": "assistant", "parts": [_text(text)], "finish_reason": stop_reason}
    return {"gen_ai.output.messages": compact([said])}


def content_of_call(call: Call) -> Attributes:
    """A call's arguments, and the result that the model read."""
    arguments = {"gen_ai.tool.call.arguments": _cut(compact(dict(call.arguments)))}
    if call.outcome is None:
        return arguments
    return {**arguments, "gen_ai.tool.call.result": _cut(content_of(call.outcome))}


def _told(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [_part(block) for block in blocks_of(message)]}


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return _text(block.get("text"))
        case "thinking":
            return {"type": "reasoning", "content": _cut(str(block.get("thinking")))}
        case "tool_use":
            wanted = {"id": block.get("id"), "name": block.get("name")}
            return {"type": "tool_call", **wanted, "arguments": _json(block.get("input"))}
        case "tool_result":
            return {"type": "tool_call_response", "id": block.get("tool_use_id"), "response": _json(block["content"])}
        case other:
            return {"type": str(other)}


def _text(text: object) -> dict[str, str]:
    return {"type": "text", "content": _cut(str(text))}


def _json(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value, or the beginning of its JSON text if that is too long."""
    text = value if isinstance(value, str) else compact(value)
    return value if len(text) <= MOST_CHARS else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"
