"""What is wrong with a model's arguments, one line for each problem, in words that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from harness_worker.core.canonical import MAX_NESTING, compact, nests_deeper
from harness_worker.core.registration.content import to_json
from harness_worker.core.registration.tools import Arguments
from harness_worker.core.text import clean_text, cut_text
from harness_worker.errors import ArgumentsInvalid, UnserialisableResult
from harness_worker.validation import complaint

MAX_PROBLEMS = 20
MISSING = "required, but missing"
UNKNOWN = "not an argument of this tool"
TOO_DEEP = f"nests deeper than {MAX_NESTING} levels"

_MAX_SHOWN_CHARS = 80
_MAX_TOLD_CHARS = 10_000
_SAID = {"missing": MISSING, "extra_forbidden": UNKNOWN}


def problems_of(invalid: ValidationError) -> tuple[str, ...]:
    """One line for each error, naming its argument."""
    return bounded([_line(error) for error in invalid.errors(include_url=False, include_context=False)])


def bounded(lines: Sequence[str]) -> tuple[str, ...]:
    """At most ``MAX_PROBLEMS`` lines, long ones cut, followed by the number of lines left out."""
    more = len(lines) - MAX_PROBLEMS
    told = tuple(cut_text(line, _MAX_TOLD_CHARS // min(len(lines), MAX_PROBLEMS)) for line in lines[:MAX_PROBLEMS])
    return told if more <= 0 else (*told, f"and {more} more")


def place(path: Sequence[str | int]) -> str:
    """``("items", 0, "qty")`` as ``items[0].qty``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return short("".join(steps).removeprefix(".")) or "arguments"


def short(text: str) -> str:
    """``text``, cut to a few characters and cleaned so that it can be stored."""
    clean = clean_text(text)
    return clean if len(clean) <= _MAX_SHOWN_CHARS else f"{clean[:_MAX_SHOWN_CHARS]}…"


def json_text(arguments: Arguments) -> str:
    """The arguments as JSON text.

    Raises:
        ArgumentsInvalid: A value cannot be written as JSON in UTF-8 (NaN, a lone surrogate), or is nested deeper than
            ``MAX_NESTING`` levels; the message names its argument.
    """
    try:
        text = _strict_json(arguments)
        if not nests_deeper(arguments):
            return text
    except (ValueError, RecursionError):
        pass
    wrong = {name: _wrong({name: value}) for name, value in arguments.items()}
    raise ArgumentsInvalid(bounded([f"{short(name)}: {why}" for name, why in wrong.items() if why]))


def _strict_json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def _wrong(argument: Arguments) -> str | None:
    """What is wrong with one argument, in a line that begins with its name; ``None`` if nothing is."""
    try:
        _strict_json(argument)
    except ValueError:
        return "not JSON"
    except RecursionError:
        return TOO_DEEP
    return TOO_DEEP if nests_deeper(argument) else None


def _line(error: Mapping[str, Any]) -> str:
    said = _SAID.get(error["type"])
    if said is None:
        message = clean_text(complaint(error))
        first = message[:1] if message[1:2].isupper() else message[:1].lower()  # an abbreviation stays one
        said = f"{first}{message[1:]} (got {_shown(error['input'])})"
    return f"{place(error['loc'])}: {said}"


def _shown(value: object) -> str:
    """A refused value in a few characters; its type, if JSON cannot hold what a validator made of it."""
    try:
        return short(compact(to_json(value)))
    except UnserialisableResult:
        return short(type(value).__name__)
