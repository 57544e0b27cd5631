"""Makes text of users, models and tools harmless for a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text without control characters other than newline and tab: none of them may move a terminal's cursor."""
    return _CONTROL.sub("·", text)


def one_line(text: str) -> str:
    """The text on one line."""
    return plain(" ".join(text.split()))


def harmless(document: Any) -> Any:  # noqa: ANN401 - any JSON
    """A copy of a document with every string made plain, so that it may be drawn."""
    if isinstance(document, str):
        return plain(document)
    if isinstance(document, Mapping):
        found = cast("Mapping[str, Any]", document)
        return {plain(name): harmless(value) for name, value in found.items()}
    return [harmless(each) for each in cast("list[Any]", document)] if isinstance(document, list) else document
