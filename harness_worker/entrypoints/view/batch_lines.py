"""Batches in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.columns import GAP, left, widths
from harness_worker.entrypoints.view.figures import age, counted
from harness_worker.entrypoints.view.turn_table import SHORT_ID

_HEAD: Final = ("batch", "age", "status", "turns")


def batch_words(batch: Mapping[str, Any]) -> str:
    """The statuses of a batch's turns: ``3 turns: 1 running, 2 completed``."""
    counts = ", ".join(f"{number:,} {status}" for status, number in batch["counts"].items() if number)
    return f"{counted(batch['total'], 'turn')}: {counts or 'none is left'}"


def batch_table(batches: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[Text]:
    """A line per batch: the end of its id, its age, its status, and the statuses of its turns.

    Args:
        batches: The batches, as from ``GET /v1/batches``.
        now: The time to which ages are counted.
    """
    rows = [_HEAD, *(_cells(batch, now) for batch in batches)]
    sizes = widths(rows)[:-1]
    for number, (*row, turns) in enumerate(rows):
        yield Text(GAP.join((*map(left, row, sizes), turns)), style="" if number else "bold")


def _cells(batch: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    return (batch["id"][-SHORT_ID:], age(batch["created_at"], now), batch["status"], batch_words(batch))


def batch_facts(batch: Mapping[str, Any]) -> Iterator[str]:
    """A line per fact."""
    yield f"batch     {batch['id']}"
    yield f"status    {batch['status']}"
    yield f"turns     {batch_words(batch)}"
    yield f"created   {batch['created_at']}"
    if batch["ended_at"]:
        yield f"ended     {batch['ended_at']}"
    for key, value in batch["metadata"].items():
        yield f"metadata  {one_line(key)}={one_line(value)}"
