"""A model request as the body of ``POST /v1/messages``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

from harness_worker.adapters.anthropic.call_ids import acceptable
from harness_worker.core.prompting.sent import blocks_of
from harness_worker.core.records import Message
from harness_worker.core.registration.schema_draft import in_2020_12
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.ports import ModelRequest

MAX_OUTPUT_TOKENS: Final = 8_192
"""The maximum length of one reply; one that needs more ends the turn as ``incomplete``, ``max_tokens``."""

MAX_THOUGHT_TOKENS: Final = 23_808
"""Room for thinking before the reply, which counts towards the limit. Newer models think by default; unused room costs
nothing.

Together these are 32,000 tokens, because models whose output is limited to that refuse a request for more.
"""

CACHE_CONTROL: Final[Mapping[str, str]] = {"type": "ephemeral"}
"""Given at the top level, it makes the provider put the breakpoint after the last block that can be cached."""

LOOK_BACK_BLOCKS: Final = 20
"""How many blocks before a breakpoint the provider searches for a cached prefix."""

REFUSED_AT_THE_TOP: Final = frozenset({"anyOf", "oneOf", "allOf"})
"""Keywords that the provider refuses at the top of a tool's schema. They are left out of requests only: arguments are
checked here against the whole schema."""


INSTEAD_OF_TOOLS: Final[Mapping[str, Any]] = {
    "tools": [{"name": "none", "description": "There are no tools.", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "none"},
}
"""What is sent for an agent without tools whose history has calls, of another agent or of itself when it had some: the
provider refuses such a history from a request that defines no tool."""


def body_of(request: ModelRequest) -> dict[str, Any]:
    """The body without ``stream``. The history is sent as it is stored, except for ids and for pauses' ends."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": (request.max_tokens or MAX_OUTPUT_TOKENS) + MAX_THOUGHT_TOKENS,
        "messages": _messages(tuple(_trimmed(tuple(acceptable(request.messages))))),
        "cache_control": dict(CACHE_CONTROL),
    }
    if request.system.strip():  # the provider refuses a blank one
        body["system"] = request.system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    elif any(block["type"] == "tool_use" for message in request.messages for block in blocks_of(message)):
        body |= INSTEAD_OF_TOOLS
    if request.think != "off":
        body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {"effort": request.think}
    return body


def _trimmed(messages: Sequence[Message]) -> Iterator[Message]:
    """The messages, without whitespace at the end of those that the model continues: no request may end in it."""
    for message, following in zip_longest(messages, messages[1:]):
        is_continued = message.role == "assistant" and (following is None or following.role == "assistant")
        yield _without_space_behind(message) if is_continued else message


def _without_space_behind(message: Message) -> Message:
    *before, last = blocks_of(message)
    if last.get("type") != "text":
        return message
    return replace(message, content=[*before, {**last, "text": last["text"].rstrip()}])


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """All messages, with a breakpoint where the last request ended if it is out of reach of the one at the end."""
    at = _end_of_last_request(messages)
    is_far = at is not None and sum(len(blocks_of(each)) for each in messages[at + 1 :]) >= LOOK_BACK_BLOCKS
    return [_message(each, ends=is_far and number == at) for number, each in enumerate(messages)]


def _end_of_last_request(messages: Sequence[Message]) -> int | None:
    """The index at which the request ended that the model's last message answers.

    The last message of a turn that was cut short is the harness's own: it answers no request and is in no journal.
    """
    said = (at for at in reversed(range(1, len(messages))) if _is_of_the_model(messages[at]))
    return next((at - 1 for at in said), None)


def _is_of_the_model(message: Message) -> bool:
    return message.role == "assistant" and message.position >= 0


def _message(message: Message, *, ends: bool) -> dict[str, Any]:
    content: object = message.content
    if ends:
        *before, last = blocks_of(message)
        content = [*before, {**last, "cache_control": dict(CACHE_CONTROL)}]
    return {"role": message.role, "content": content}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = {word: rule for word, rule in tool.schema.items() if word not in REFUSED_AT_THE_TOP}
    return {"name": tool.name, "description": tool.description, "input_schema": dict(in_2020_12(schema))}
