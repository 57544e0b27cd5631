"""The usage of turns as a table: one line per group, the total last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.columns import GAP, cut_middle, left, right, widths

NONE: Final = "(none)"
"""Shown as the key of the group of turns without one."""

_COLUMNS: Final[Mapping[str, str]] = {
    "turns": "turns",
    "steps": "steps",
    "tool_calls": "calls",
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "read",
    "cache_write_tokens": "written",
}
_LEAST_KEY: Final = 12
_UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"))


def usage_table(report: Mapping[str, Any], width: int) -> Iterator[Text]:
    """A line per group: its key, turns, steps, calls, tokens of each class, dollars.

    Args:
        report: The report, as from ``GET /v1/usage``.
        width: The width available, in columns.
    """
    rows = [
        (one_line(report["by"]), *_COLUMNS.values(), "dollars"),
        *(_cells(NONE if group["key"] is None else one_line(group["key"]), group) for group in report["data"]),
        _cells("total", report["total"]),
    ]
    longest, *numbers = widths(rows)
    room = max(width - sum(numbers) - len(GAP) * len(numbers), _LEAST_KEY)
    most = min(room, longest)
    for index, (key, *cells) in enumerate(rows):
        is_group = 0 < index < len(rows) - 1
        line = GAP.join((left(cut_middle(key, most), most), *map(right, cells, numbers)))
        yield Text(line, style="" if is_group else "bold")


def _cells(key: str, figures: Mapping[str, Any]) -> tuple[str, ...]:
    return (key, *(_short(figures[name]) for name in _COLUMNS), f"${figures['dollars']:,.4f}")


def _short(number: int) -> str:
    """A number: below a million in full, above it with about four digits."""
    return next((f"{number / size:,.2f}{unit}" for size, unit in _UNITS if number >= size), f"{number:,}")
