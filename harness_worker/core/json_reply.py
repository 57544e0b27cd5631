"""Extracts the JSON object from a model's reply, whatever text surrounds it."""

from __future__ import annotations

import json
from typing import Any, cast


def object_in(text: str) -> dict[str, Any]:
    """The object between the first and the last brace; empty if that is not a JSON object."""
    try:
        said: object = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):  # RecursionError: nested deeper than Python can read
        return {}
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
