"""Conditional and range requests: which part of something a client wants, if any (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_ONE: Final = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The bytes from ``start`` up to, but not including, ``stop``."""

    start: int
    stop: int


class Unsatisfiable(ValueError):  # noqa: N818 - RFC 9110's word
    """None of the bytes that exist are in the range."""


def span_of(header: str | None, size: int) -> Span | None:
    """The part of ``size`` bytes that a ``Range`` header asks for; ``None`` means all of them.

    A header that cannot be read, is not about bytes or asks for several ranges is ignored, as the RFC allows.

    Raises:
        Unsatisfiable: The range begins after the end, or is empty.
    """
    asked = _ONE.fullmatch(header or "")
    if asked is None or asked[1] == asked[2] == "":
        return None
    if asked[1] == "":
        return _within(size - int(asked[2]), size, size)
    first, last = int(asked[1]), int(asked[2] or asked[1])
    if last < first:
        return None
    return _within(first, last + 1 if asked[2] else size, size)


def is_named(etag: str, if_none_match: str) -> bool:
    """Whether an ``If-None-Match`` header names the ``ETag``, by weak comparison, or is ``*`` (section 13.1.2)."""
    named = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return etag in named or named == ["*"]


def _within(start: int, stop: int, size: int) -> Span:
    span = Span(start=max(0, start), stop=min(stop, size))
    if span.start >= span.stop:
        raise Unsatisfiable
    return span
