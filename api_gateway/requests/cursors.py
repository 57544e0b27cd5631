"""Opaque cursors of lists, newest first."""

from __future__ import annotations

import base64
import json
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The last row of a page: the next page has rows made before it. ``created_at`` is in seconds since the epoch."""

    created_at: float
    id: str


def format_cursor(cursor: Cursor) -> str:
    """The cursor as an opaque text for clients."""
    text = json.dumps([cursor.created_at, cursor.id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(text: str) -> Cursor:
    """The cursor from which :func:`format_cursor` made ``text``.

    Raises:
        ValueError: ``text`` was not made by it.
    """
    with suppress(ValueError, TypeError, RecursionError, OverflowError):
        raw: Any = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        created_at, last_id = raw
        cursor = Cursor(created_at=float(created_at), id=last_id)
        is_text = isinstance(last_id, str) and b"\0" not in last_id.encode()  # a lone surrogate is a ValueError
        if is_text and math.isfinite(cursor.created_at) and format_cursor(cursor) == text:
            return cursor
    raise ValueError("is not a cursor; pass the `next` of a page as it was given")
