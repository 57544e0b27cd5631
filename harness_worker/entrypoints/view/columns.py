"""Fits text into the columns of a terminal, where a character may take two."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

MAX_WIDTH: Final = 100
"""How many columns of a wider terminal are used; longer lines are hard to read."""

GAP: Final = "  "
"""The space between two columns."""


def cut(text: str, room: int) -> str:
    """The text if it fits, else its beginning."""
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1)}…"


def cut_middle(text: str, room: int) -> str:
    """The text if it fits, else its beginning and its end, because ids made at about the same time begin alike."""
    if cell_len(text) <= room:
        return text
    end = (room - 1) // 2
    return f"{set_cell_size(text, room - 1 - end)}…{set_cell_size(text[::-1], end)[::-1]}"


def wrapped(text: str, room: int, most: int | None = None) -> list[str]:
    """A paragraph without control characters, in rows that fit, of which at most ``most`` are shown."""
    padded = "".join(char + "\0" * (cell_len(char) - 1) for char in text)  # textwrap takes each for one column
    room -= "\0" in padded  # a row may end between a character and its padding
    return [row.replace("\0", "") for row in textwrap.wrap(padded, room, max_lines=most, placeholder=" …")]


def widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column of a table with these rows."""
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def left(text: str, size: int) -> str:
    """The text at the left of a column."""
    return text + " " * (size - cell_len(text))


def right(text: str, size: int) -> str:
    """The text at the right of a column."""
    return " " * (size - cell_len(text)) + text
