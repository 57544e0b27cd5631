"""Many turns as a table that fits the available width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.columns import GAP, cut, left, right, widths
from harness_worker.entrypoints.view.figures import age, tokens_of

SHORT_ID: Final = 12
"""How many characters of an id's end are shown; its beginning is a time, and similar for turns of the same hour."""

STYLES: Final[Mapping[str, str]] = {
    "running": "yellow",
    "requires_action": "magenta",
    "completed": "green",
    "incomplete": "red",
    "failed": "red",
    "cancelled": "dim",
}

_HEAD: Final = ("turn", "age", "status", "agent", "steps", "calls", "tokens", "asked")
_STATUS: Final = 2
_NUMBERS: Final = frozenset({4, 5, 6})
_MOST_AGENT: Final = 12
_LEAST_ASKED: Final = 8


def turn_table(turns: Sequence[Mapping[str, Any]], now: datetime, width: int) -> Iterator[Text]:
    """A line per turn: the end of its id, age, status, agent, steps, calls, tokens, and how its input starts.

    Args:
        turns: The turns, as from ``GET /v1/turns``.
        now: The time to which ages are counted.
        width: The width available, in columns.
    """
    rows = [_HEAD, *(_cells(turn, now) for turn in turns)]
    sizes = widths(rows)[:-1]
    room = max(width - sum(sizes) - len(GAP) * len(sizes), _LEAST_ASKED)
    for number, row in enumerate(rows):
        cells = [(right if column in _NUMBERS else left)(row[column], size) for column, size in enumerate(sizes)]
        line = Text(GAP.join((*cells, cut(row[-1], room))), style="" if number else "bold")
        if number:
            start = len(GAP.join((*cells[:_STATUS], "")))
            line.stylize(STYLES.get(row[_STATUS], ""), start, start + len(row[_STATUS]))
        yield line


def _cells(turn: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    usage = turn["usage"]
    return (
        turn["id"][-SHORT_ID:],
        age(turn["created_at"], now),
        turn["status"],
        cut(one_line(turn["agent"]), _MOST_AGENT),
        str(usage["steps"]),
        str(usage["tool_calls"]),
        f"{tokens_of(usage):,}",
        one_line(turn["input"]),
    )
