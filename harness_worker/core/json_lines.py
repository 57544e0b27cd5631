"""Reads JSON lines that people wrote, and explains what cannot be sent to a gateway or stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic_core import from_json

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, each with its number, from 1."""
    lines = data.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def parsed(line: bytes) -> object:
    """The JSON value in a line.

    Raises:
        ValueError: The line is not JSON in UTF-8, has a number that is not finite, or is nested too deeply.
    """
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start + 1}") from None
    try:
        found: object = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"not JSON: {str(error).replace(' at line 1 column ', ' at column ')}") from None
    _check_numbers(found)
    return found


def _check_numbers(found: object) -> None:
    """Refuse infinity, which is what 1e999 is read as.

    Raises:
        ValueError: The value contains infinity.
    """
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        raise ValueError("a number is too large: give one below 1e308") from None
