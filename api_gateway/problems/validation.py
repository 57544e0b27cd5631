"""Pydantic's validation errors, rewritten for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from api_gateway.problems.documents import FieldProblem

MOST_PROBLEMS: Final = 20
"""How many problems of one request are reported: a batch may have thousands."""

TOO_SHORT: Final = frozenset({"too_short", "string_too_short"})
"""Pydantic's error types for a text or a list that is too short."""


def field_problems(errors: Sequence[Mapping[str, Any]], *prefix: str) -> list[FieldProblem]:
    """The first of Pydantic's errors, as the API reports them; never with the values, which may be long or secret."""
    shown = [
        FieldProblem(loc=[*prefix, *(_printable(part) for part in error["loc"])], msg=_message(error))
        for error in errors[:MOST_PROBLEMS]
    ]
    others = len(errors) - len(shown)
    return [*shown, FieldProblem(loc=[*prefix], msg=f"and {others} more are wrong")] if others else shown


def _printable(part: str | int) -> str | int:
    return part if isinstance(part, int) else part[:200]


def _message(error: Mapping[str, Any]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] in TOO_SHORT and error["ctx"]["min_length"] == 1:
        return "must not be empty"
    if error["type"] == "too_long" and error["ctx"]["field_type"] == "Value":  # a text whose characters were checked
        return "must have at most {max_length} characters, not {actual_length}".format_map(error["ctx"])
    return "unknown field" if error["type"] == "extra_forbidden" else message
