"""The JSON object in what a model replied, whatever it said around it."""

from __future__ import annotations

import json
from typing import Any, cast


def object_in(text: str) -> dict[str, Any]:
    """The object from the first brace to the last; empty if that is none."""
    try:
        said: object = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):  # it may be nested deeper than Python reads
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
