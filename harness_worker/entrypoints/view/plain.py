"""Text of users, models and tools, made harmless for a terminal."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text without control characters other than newline and tab: none of them may move a terminal's cursor."""
    return _CONTROL.sub("·", text)


def one_line(text: str) -> str:
    """The text on one line."""
    return plain(" ".join(text.split()))


def compact(value: Any) -> str:  # noqa: ANN401 - any JSON
    """A string as it is, anything else as JSON without spaces."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
