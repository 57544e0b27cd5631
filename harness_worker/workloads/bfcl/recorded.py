"""Parses BFCL's recorded calls without running them; the package itself would evaluate their text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from harness_worker.workloads.base import RecordedCall


def recorded_call(text: str, signatures: Mapping[str, inspect.Signature]) -> RecordedCall:
    """One call, with its arguments by name.

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


def _named(call: ast.Call, text: str) -> dict[str, Any]:
    named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    if None in named:
        raise ValueError(f"arguments are not spelled out: {text}")
    return {str(name): value for name, value in named.items()}
