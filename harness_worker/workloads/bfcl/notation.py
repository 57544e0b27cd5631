"""Translates BFCL's own notation: recorded calls and function documents."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any, Final, cast

from harness_worker.workloads.base import RecordedCall

_TYPES: Final = {"dict": "object", "float": "number", "tuple": "array"}


def recorded_call(text: str, signatures: Mapping[str, inspect.Signature]) -> RecordedCall:
    """One call, with its arguments by name; it is parsed, not run, whereas the package itself would evaluate its text.

    Args:
        text: The recorded text, ``mv(source='a', destination='b')``; arguments are literals, by name or by position.
        signatures: The signatures of the domain classes' unbound methods.

    Raises:
        ValueError: The text is not a call of a known method with literal arguments.
    """
    call = ast.parse(text.strip(), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in signatures:
        raise ValueError(f"not a call of a known method: {text}")
    names = list(signatures[call.func.id].parameters)[1:]
    placed = {name: ast.literal_eval(value) for name, value in zip(names, call.args, strict=False)}
    return RecordedCall(tool=call.func.id, arguments={**placed, **_named(call, text)}, is_read=False)


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


def _named(call: ast.Call, text: str) -> dict[str, Any]:
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    if None in named:
        raise ValueError(f"arguments are not spelled out: {text}")
    return {str(name): value for name, value in named.items()}
