"""Many turns as a table that fits the width there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from harness_worker.entrypoints.view.plain import one_line

SHORT_ID: Final = 12
"""How many characters of an id's end are shown; the beginning is a time, and alike for turns of the same hour."""

STYLES: Final[Mapping[str, str]] = {
    "running": "yellow",
    "requires_action": "magenta",
    "completed": "green",
    "incomplete": "red",
    "failed": "red",
    "cancelled": "dim",
}

GAP: Final = "  "
_HEAD: Final = ("turn", "age", "status", "agent", "steps", "calls", "tokens", "asked")
_STATUS: Final = 2
_NUMBERS: Final = frozenset({4, 5, 6})
_MOST_AGENT: Final = 12
_LEAST_ASKED: Final = 8
_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def turn_table(turns: Sequence[Mapping[str, Any]], now: datetime, width: int) -> Iterator[Text]:
    """A line a turn: the end of its id, age, status, agent, steps, calls, tokens, and how its input starts.

    Args:
        turns: As ``GET /v1/turns`` gives them.
        now: What ages are counted to.
        width: Columns there are.
    """
    rows = [_HEAD, *(_cells(turn, now) for turn in turns)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    room = max(width - sum(widths) - len(GAP) * len(widths), _LEAST_ASKED)
    for number, row in enumerate(rows):
        cells = [_padded(cell, size, column) for column, (cell, size) in enumerate(zip(row, widths, strict=False))]
        line = Text(GAP.join((*cells, _cut(row[-1], room))), style="" if number else "bold")
        if number:
            line.highlight_words([f" {row[_STATUS]} "], STYLES.get(row[_STATUS], ""))
        yield line


def tokens_of(usage: Mapping[str, Any]) -> int:
    """All tokens, of every class."""
    return sum(usage[name] for name in _TOKENS)


def age(created_at: str, now: datetime) -> str:
    """How long ago: ``3s``, ``12m``, ``5h``, ``9d``."""
    seconds = max(0, int((now - datetime.fromisoformat(created_at)).total_seconds()))
    return next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= size), "0s")


def _cells(turn: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    usage = turn["usage"]
    return (
        turn["id"][-SHORT_ID:],
        age(turn["created_at"], now),
        turn["status"],
        _cut(one_line(turn["agent"]), _MOST_AGENT),
        str(usage["steps"]),
        str(usage["tool_calls"]),
        f"{tokens_of(usage):,}",
        one_line(turn["input"]),
    )


def _padded(cell: str, size: int, column: int) -> str:
    space = " " * (size - cell_len(cell))
    return space + cell if column in _NUMBERS else cell + space


def _cut(text: str, room: int) -> str:
    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1)}…"
