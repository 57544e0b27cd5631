"""Turns BFCL's function documents, which use the names of Python's types, into JSON Schema."""

from __future__ import annotations

from typing import Any, Final, cast

_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array"}


def json_schema(document: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The document with JSON Schema's names of types; the type ``any`` is left out."""
    if isinstance(document, list):
        return [json_schema(part) for part in cast("list[Any]", document)]
    if not isinstance(document, dict):
        return document
    parts = cast("dict[str, Any]", document)
    # A property may itself be called "type": then its value is a document, not a name.
    return {
        key: _TYPES.get(part, part) if key == "type" and isinstance(part, str) else json_schema(part)
        for key, part in parts.items()
        if not (key == "type" and part == "any")
    }
