"""Many turns as a table that fits 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

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

_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def turn_table(turns: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    """A row a turn: the end of its id, age, status, agent, steps, calls, tokens, and how its input starts.

    Args:
        turns: As ``GET /v1/turns`` gives them.
        now: What ages are counted to.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name, width in (("turn", SHORT_ID), ("age", 3), ("status", None), ("agent", None)):
        table.add_column(name, no_wrap=True, min_width=width, max_width=16, overflow="ellipsis")
    for name in ("steps", "calls", "tokens"):
        table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
    table.add_column("asked", no_wrap=True, overflow="ellipsis", ratio=1)
    for turn in turns:
        table.add_row(*_cells(turn, now))
    return table


def tokens_of(usage: Mapping[str, Any]) -> int:
    """All tokens, of every class."""
    return sum(usage[name] for name in _TOKENS)


def age(created_at: str, now: datetime) -> str:
    """How long ago: ``3s``, ``12m``, ``5h``, ``9d``."""
    seconds = max(0, int((now - datetime.fromisoformat(created_at)).total_seconds()))
    return next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= size), "0s")


def _cells(turn: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    usage, status = turn["usage"], turn["status"]
    style = STYLES.get(status)
    return (
        turn["id"][-SHORT_ID:],
        age(turn["created_at"], now),
        f"[{style}]{status}[/]" if style else status,
        escape(one_line(turn["agent"])),
        str(usage["steps"]),
        str(usage["tool_calls"]),
        f"{tokens_of(usage):,}",
        escape(one_line(turn["input"])),
    )
