"""What is wrong with an option's value, in words: typer passes on those of the library that reads it."""

from __future__ import annotations

from typing import Any, Final

import typer

SHOWN: Final = 80
"""How many characters of a value are shown."""

_NUMBERS: Final = {int: "a whole number", float: "a number"}


def words_for(wrong: typer.BadParameter) -> str:
    """What the value is, and what it may be."""
    param: Any = wrong.param
    errors = getattr(wrong.__cause__, "errors", None)
    if param is None or errors is None:
        return wrong.message
    error = errors()[0]
    own = error.get("ctx", {}).get("error")
    if own is not None:
        return str(own).removesuffix(".")
    kind = _NUMBERS.get(param.type_descriptor.annotation)
    return wrong.message if kind is None else f"{error['input'][:SHOWN]!r} is not {kind}{_range(param.min, param.max)}"


def _range(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return "" if least is None else f" of at least {least}"
    return f" from {least} to {most}"
