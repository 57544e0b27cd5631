"""JSON objects that clients send: parsed strictly, limited in their number of values, compared by a digest."""

from __future__ import annotations

import codecs
import hashlib
import json
import sys
from typing import Any, Final, cast

from pydantic_core import from_json

from api_gateway.problems import Problem, invalid_at

MOST_VALUES: Final = 400_000
"""The most values of one body: each costs some microseconds and some hundred bytes, while a byte of text costs next to
nothing. The largest batch, whose turns all have every field and all possible metadata, has 360,000."""

EXACT: Final = 2**53
"""Up to this number a double represents every integer. No count is larger, and 1e308 would become an integer of 309
digits."""

BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``; numbers with an integral value up to 2^53 become integers.

    Raises:
        Problem: 413 ``payload_too_large``: it has too many values; 422 ``invalid_request``: it begins with a byte order
            mark, is not UTF-8, is not JSON (NaN is not), contains a number beyond a double's range or a lone surrogate,
            nests deeper than 200 levels, or is not an object.
    """
    if raw.startswith(BYTE_ORDER_MARKS):
        raise invalid_at(["body"], "begins with a byte order mark: send JSON in UTF-8 without one")
    if may_have_more_values(raw, MOST_VALUES):
        raise Problem("payload_too_large", f"the body has more than {MOST_VALUES} JSON values: send fewer at once")
    try:
        parsed = from_json(raw, allow_inf_nan=False)
        _make_integral(parsed)
    except ValueError as error:
        raise invalid_at(["body"], f"not valid JSON in UTF-8: {_plain(str(error))}") from None
    if not isinstance(parsed, dict):
        raise invalid_at(["body"], "must be a JSON object")
    return cast("dict[str, Any]", parsed)


def may_have_more_values(raw: bytes, most: int) -> bool:
    """Whether JSON has more than ``most`` values, counting empty objects and lists twice; it is not parsed for that.

    Each value but the outermost follows a comma, or is the first in an object or a list. Bytes within texts are left
    out only if the count over all bytes does not already show that there are few values.
    """
    if _beginnings(raw) < most:
        return False
    without_escapes = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    if without_escapes.count(b'"') > 4 * most:  # a value has at most a name and a text, two quotes each
        return True
    return _beginnings(b"".join(without_escapes.split(b'"')[::2])) >= most


def _beginnings(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def digest(parsed: object) -> str:
    """SHA-256 of the canonical form of a parsed body, in hexadecimal."""
    return hashlib.sha256(json.dumps(_without_nulls(parsed), sort_keys=True).encode()).hexdigest()


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, list):
        return [_without_nulls(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: _without_nulls(member) for name, member in members.items() if member is not None}
    return value


def _plain(message: str) -> str:
    return message.replace("unexpected end of hex escape", "a lone surrogate, which is no character,")


def _make_integral(outermost: Any) -> None:  # noqa: ANN401 - any JSON value
    """Replace the numbers in place, at every depth."""
    left = [outermost]
    while left:
        within = left.pop()
        if isinstance(within, dict):
            places = cast("dict[Any, Any]", within).items()
        elif isinstance(within, list):
            places = enumerate(cast("list[Any]", within))
        else:
            continue
        for place, value in places:
            if type(value) in _NUMBERS:
                within[place] = _normal_number(value)
            elif type(value) in _CONTAINERS:
                left.append(value)


_NUMBERS: Final = frozenset({int, float})  # no bool
_CONTAINERS: Final = frozenset({dict, list})


def _normal_number(number: float) -> float | int:
    if not abs(number) <= sys.float_info.max:
        raise ValueError("a number is out of range")
    return int(number) if abs(number) <= EXACT and float(number).is_integer() else number
