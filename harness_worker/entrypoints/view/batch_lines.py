"""Batches in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.figures import age, counted
from harness_worker.entrypoints.view.turn_table import SHORT_ID


def batch_words(batch: Mapping[str, Any]) -> str:
    """The statuses of a batch's turns: ``3 turns: 1 running, 2 completed``."""
    counts = ", ".join(f"{number:,} {status}" for status, number in batch["counts"].items() if number)
    return f"{counted(batch['total'], 'turn')}: {counts or 'none is left'}"


def batch_line(batch: Mapping[str, Any], now: datetime) -> str:
    """A batch in a list: the end of its id, its age, its status, and the statuses of its turns."""
    return f"{batch['id'][-SHORT_ID:]}  {age(batch['created_at'], now):>3}  {batch['status']:<11}  {batch_words(batch)}"


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
