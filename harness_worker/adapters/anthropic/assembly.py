"""Assembles a reply from the events of its stream, with its blocks exactly as they were sent."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from harness_worker.adapters.anthropic.prices import dollars_of
from harness_worker.core.budget import Usage
from harness_worker.core.canonical import MAX_NESTING, nests_deeper
from harness_worker.core.text import clean_json, clean_text
from harness_worker.errors import TransientError
from harness_worker.ports import ModelReply

log = logging.getLogger(__name__)

Event = Mapping[str, Any]

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_MOST: Final = 10**9
UNKNOWN_KINDS_TOLD: Final = 100
MOST_KIND_CHARS: Final = 100
_CUT_SHORT: Final = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})
"""Stop reasons after which the last call's arguments may be incomplete JSON; no call of such a reply is run."""

_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "thinking": ("thinking",),
    "tool_use": ("id", "name"),
}
"""Fields that must be strings, by the kind of block; neither the turn's rules nor the provider accept anything else."""

_LATER: Final[Mapping[str, frozenset[str]]] = {"compaction": frozenset({"encrypted_content"})}
"""Fields without which a block may begin, by its kind; their deltas bring them."""

_NO_OBJECT: Final = (
    "the model asked for a tool with arguments that are no JSON object, "
    f"or one that nests deeper than {MAX_NESTING} levels"
)


class Assembly:
    """One reply being assembled.

    Args:
        model: The requested model; the model that the provider reports is priced instead, if it has a price.
        on_text: Called with each piece of text, clean and in whole characters: half a surrogate pair waits for the
            other half.

    Attributes:
        is_whole: Whether ``message_stop`` was seen.
    """

    def __init__(self, model: str, on_text: Callable[[str], None]) -> None:
        self._asked = self._model = model
        self._on_text = on_text
        self._blocks: list[dict[str, Any]] = []
        self._inputs: dict[int, list[str]] = {}
        self._said: list[str] = []
        self._half = ""
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._hour_tokens = self._searches = 0
        self._stop_reason: str | None = None
        self._has_start = False
        self.is_whole = False

    @property
    def said(self) -> str:
        """The text so far."""
        return "".join(self._said)

    def take(self, event: Event) -> None:
        """Add one event; unknown kinds are skipped.

        Raises:
            TransientError: The event does not fit those before it.
        """
        try:
            self._take(event)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise TransientError(f"the model's stream is broken at {event.get('type')}: {error!r}") from error

    def reply(self) -> ModelReply:
        """The assembled reply.

        Raises:
            TransientError: The stream lacks its start or its end, or a call's arguments are not a JSON object. The step
                is then asked again, because an empty object instead would run the tool with its defaults, and a string
                would make the provider reject the history.
        """
        if not self.is_whole or self._stop_reason is None:
            raise TransientError("the model's stream ended before its message did")
        if not self._has_start:
            raise TransientError("the model's stream has no message_start, which tells what its input costs")
        for index, pieces in self._inputs.items():
            self._blocks[index]["input"] = self._arguments("".join(pieces))
        if any(block.get("type") == "tool_use" and not isinstance(block.get("input"), dict) for block in self._blocks):
            raise TransientError(_NO_OBJECT)
        usage = self._usage()
        return ModelReply(content=tuple(self._kept()), stop_reason=self._stop_reason, usage=usage)

    def _kept(self) -> Iterator[dict[str, Any]]:
        """The blocks without empty text (any text, if all is blank) and without thinking that cannot be sent back."""
        texts = "".join(block["text"] for block in self._blocks if block["type"] == "text")
        for block in self._blocks:
            match block["type"]:
                case "text":
                    keeps = bool(block["text"] and texts.strip())
                case "thinking":
                    keeps = _is_sendable(block)
                case _:
                    keeps = True
            if keeps:
                yield block

    def _arguments(self, text: str) -> dict[str, Any]:
        try:
            given: object = json.loads(text, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            given = None
        if isinstance(given, dict) and not nests_deeper(given):  # pyright: ignore[reportUnknownArgumentType] - JSON
            return given  # pyright: ignore[reportUnknownVariableType] - JSON
        if self._stop_reason in _CUT_SHORT:
            return {}
        raise TransientError(_NO_OBJECT)

    def _usage(self) -> Usage:
        usage = Usage(
            input_tokens=self._counts["input_tokens"],
            output_tokens=self._counts["output_tokens"],
            cache_read_tokens=self._counts["cache_read_input_tokens"],
            cache_write_tokens=self._counts["cache_creation_input_tokens"],
        )
        models = (self._model, self._asked)
        dollars = dollars_of(models, usage, hour_tokens=self._hour_tokens, searches=self._searches)
        return usage.plus(Usage(dollars=dollars))

    def _take(self, event: Event) -> None:
        match event["type"]:
            case "message_start":
                self._start(event["message"])
            case "content_block_start":
                self._start_block(event)
            case "content_block_delta":
                self._extend(event["index"], event["delta"])
            case "message_delta":
                self._stop_reason = _text(event["delta"].get("stop_reason") or self._stop_reason or "") or None
                self._count(event.get("usage") or {})
            case "message_stop":
                self._end_text()
                self.is_whole = True
            case _:  # a ping, the end of a block, or a kind newer than this code
                return

    def _start(self, message: Event) -> None:
        self._has_start = True
        self._model = _text(message.get("model") or self._model)
        self._count(message.get("usage") or {})

    def _start_block(self, event: Event) -> None:
        if event["index"] != len(self._blocks):
            raise ValueError(f"a block out of order after {len(self._blocks)} blocks")
        block: dict[str, Any] = {**event["content_block"]}
        for name in _TEXTS.get(block["type"], ()):
            _text(block[name])
        self._end_text()
        self._blocks.append(block)
        if block["type"] == "text":
            self._say(block["text"])

    def _extend(self, index: int, delta: Event) -> None:
        if index < 0:
            raise IndexError(index)
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                self._say(delta["text"])
            case "input_json_delta":
                if _text(delta["partial_json"]):
                    self._inputs.setdefault(index, []).append(delta["partial_json"])
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = _text(delta["signature"])
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
            case unknown:
                _fill(block, delta, _text(unknown)[:MOST_KIND_CHARS])

    def _count(self, usage: Event) -> None:
        """Update the counts. They are cumulative: a later one replaces an earlier, a missing one changes nothing."""
        self._counts.update({name: _number(usage[name]) for name in _COUNTS if usage.get(name) is not None})
        written: Event = usage.get("cache_creation") or {}
        if written and usage.get("cache_creation_input_tokens") is None:
            self._counts["cache_creation_input_tokens"] = sum(_number(each or 0) for each in written.values())
        self._hour_tokens = _number(written.get("ephemeral_1h_input_tokens") or self._hour_tokens)
        served: Event = usage.get("server_tool_use") or {}
        self._searches = _number(served.get("web_search_requests") or self._searches)

    def _say(self, piece: str) -> None:
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._tell(text.removesuffix(self._half))

    def _end_text(self) -> None:
        """Pass on a surrogate whose other half never came, if there is one."""
        half, self._half = self._half, ""
        self._tell(half)

    def _tell(self, text: str) -> None:
        if text:
            self._said.append(clean_text(text))
            self._on_text(self._said[-1])


def _fill(block: dict[str, Any], delta: Event, kind: str) -> None:
    """Add a delta of a kind not handled above to a block of a kind not in ``_TEXTS``, but only to its own fields."""
    own = block.keys() | _LATER.get(block["type"], frozenset())
    names = [] if block["type"] in _TEXTS else [name for name in delta if name != "type" and name in own]
    for name in names:
        old, new = block.get(name), delta[name]
        block[name] = old + new if isinstance(old, str) and isinstance(new, str) else new
    if not names:
        _tell_unknown(kind)


@lru_cache(maxsize=UNKNOWN_KINDS_TOLD)
def _tell_unknown(kind: str) -> None:
    """Log it once: a reply may have thousands."""
    log.warning("the model's streams have deltas of an unknown kind, %r; they are left out", kind)


def _is_sendable(thought: Event) -> bool:
    """Whether the provider accepts it back: it is signed, and can be stored exactly as it was signed."""
    return bool(thought.get("signature")) and clean_json(thought) == json.loads(json.dumps(thought))  # joins surrogates


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a value of type {type(value).__name__} is no text")
    return value


def _finite(text: str) -> float:
    """A number in the arguments; Python would also read NaN, Infinity and 1e999, which JSON cannot represent."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


def _number(count: Any) -> int:  # noqa: ANN401 - whatever the stream holds
    """A count of tokens or searches."""
    if not 0 <= count <= _MOST or count != int(count):
        raise ValueError(f"{count} is no number of tokens or searches")
    return int(count)
