"""The scripted answers of the Messages API stub, and the stream events that deliver them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

Block: TypeAlias = Mapping[str, Any]
Event: TypeAlias = dict[str, Any]

DEFAULT_USAGE: Final[Mapping[str, int]] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 5,
}
_EMPTY: Final[Mapping[str, Block]] = {
    "text": {"text": ""},
    "tool_use": {"input": {}},
    "thinking": {"thinking": "", "signature": ""},
}
"""The empty fields with which a streamed block starts; its deltas fill them."""


class Ending(StrEnum):
    """How a stream ends."""

    WHOLE = "whole"
    ERROR = "error"
    CUT = "cut"
    CLOSE = "close"
    HANG = "hang"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A streamed message, or the beginning of one.

    Args:
        content: Its blocks. A tool_use whose ``input`` is a string streams it unchanged, as malformed JSON.
        stop_reason: ``None`` means ``tool_use`` if the content asks for tools, else ``end_turn``.
        usage: By Anthropic's names. ``message_start`` reports all of it except the output tokens.
        piece_chars: Characters in each delta.
        pause_s: Seconds before each event.
        ending: How the stream ends.
        after: How many events are sent before an ``ending`` other than whole, not counting ``ping``.
        error: The type and message that an ``ERROR`` ending sends.
    """

    content: Sequence[Block]
    stop_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict[str, int])
    piece_chars: int = 8
    pause_s: float = 0.0
    ending: Ending = Ending.WHOLE
    after: int = 0
    error: tuple[str, str] = ("overloaded_error", "Overloaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An HTTP error, such as 429 with ``retry-after``."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """No answer at all, however long the client waits."""


Answer: TypeAlias = Reply | Refusal | Silence


def said(text: str, **options: Any) -> Reply:  # noqa: ANN401 - any of Reply's
    """A reply with a single text block."""
    return Reply(content=[{"type": "text", "text": text}], **options)


def tool_use(number: int, name: str, /, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - a tool's arguments
    """A block that asks for a tool."""
    return {"type": "tool_use", "id": f"toolu_{number:04}", "name": name, "input": arguments}


def events_of(reply: Reply, model: str, number: int) -> Iterator[Event]:
    """Yield every event of a whole stream except pings.

    Args:
        reply: The message to stream.
        model: The model that the request named.
        number: Becomes part of the message's id.
    """
    usage = {**DEFAULT_USAGE, **reply.usage}
    message: Event = {
        "id": f"msg_stub_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(reply.content):
        yield from _block_events(index, block, reply.piece_chars)
    asks = any(block["type"] == "tool_use" for block in reply.content)
    reason = reply.stop_reason or ("tool_use" if asks else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def _block_events(index: int, block: Block, piece_chars: int) -> Iterator[Event]:
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **_EMPTY.get(block["type"], {})}}
    for delta in _deltas(block, piece_chars):
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _deltas(block: Block, piece_chars: int) -> Iterator[Block]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in _pieces(block["text"], piece_chars))
        case "tool_use":
            given = block["input"]
            text = given if isinstance(given, str) else json.dumps(given)
            yield {"type": "input_json_delta", "partial_json": ""}
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in _pieces(text, piece_chars))
        case "thinking":
            pieces = _pieces(block["thinking"], piece_chars)
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces)
            yield {"type": "signature_delta", "signature": block["signature"]}
        case _:
            return


def _pieces(text: str, chars: int) -> Iterator[str]:
    return (text[at : at + chars] for at in range(0, len(text), chars))
