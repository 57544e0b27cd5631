"""Text that every database and every provider can store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

REPLACEMENT = "\ufffd"

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What Postgres cannot store as text: U+0000 and lone surrogates."""


def clean_text(text: str) -> str:
    """``text`` with U+0000 and lone surrogates replaced by U+FFFD, and surrogate pairs by their characters."""
    if UNSTORABLE.search(text) is None:
        return text
    paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return paired.replace("\x00", REPLACEMENT)


def cut_text(text: str, most_chars: int, why: str = "") -> str:
    """``text`` in at most ``most_chars`` characters; a longer one keeps its beginning and says how long it was."""
    if len(text) <= most_chars:
        return text
    note = f"… [cut: {len(text)} characters{why}]"
    return text[: max(0, most_chars - len(note))] + note


def text_of(content: Iterable[Mapping[str, Any]]) -> str:
    """The clean text of a model's content blocks."""
    texts = (str(block.get("text", "")) for block in content if block.get("type") == "text")
    return clean_text("".join(texts))


def clean_json(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """``value`` with every text in it cleaned, keys included; parts that are clean already are returned as they are."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {clean_json(key): clean_json(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
