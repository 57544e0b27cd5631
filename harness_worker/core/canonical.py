"""JSON: compact for people and models, canonical for comparing, and as models embed it in their replies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, cast

MAX_NESTING: Final = 200
"""The deepest nesting of a model's arguments, in levels: as much as pydantic reads, and well within Python's stack."""

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_canonical = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON that keeps non-ASCII characters."""
    return _compact.encode(value)


def canonical(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON with sorted keys and ``25.0`` written as ``25``, so that equal values give equal text."""
    return _canonical.encode(_integral(value))


def sha256_of(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """The SHA-256 of a value's canonical JSON, in hexadecimal digits; equal values have equal ones."""
    return sha256(canonical(value).encode(errors="surrogatepass")).hexdigest()


def nests_deeper(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether lists and objects are nested more than ``MAX_NESTING`` levels deep; does not recurse."""
    level: list[Any] = [value]
    for _ in range(MAX_NESTING + 1):
        level = [each for each in level if isinstance(each, (dict, list, tuple))]
        if not level:
            return False
        level = [inner for each in level for inner in _inside(each)]
    return True


def parsed(text: str) -> object:
    """What a JSON document says; ``None`` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: nested deeper than Python can read
        return None


def object_in(text: str) -> dict[str, Any]:
    """The object between the first and the last brace; empty if that is not a JSON object."""
    said = parsed(text[text.find("{") : text.rfind("}") + 1])
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def _integral(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value with floats that are whole numbers turned into integers."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _integral(item) for key, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_integral(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _inside(value: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
