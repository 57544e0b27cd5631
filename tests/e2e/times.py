"""When calls ran, by what the API says of them."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any


def started(call: dict[str, Any]) -> datetime:
    """When the attempt that gave the call's outcome started."""
    return datetime.fromisoformat(call["started_at"])


def finished(call: dict[str, Any]) -> datetime:
    """When that attempt ended."""
    return datetime.fromisoformat(call["finished_at"])


def one_by_one(calls: list[dict[str, Any]]) -> bool:
    """Whether each call began after the one before had ended."""
    return all(finished(before) <= started(after) for before, after in pairwise(calls))


def waves(turn: dict[str, Any]) -> list[int]:
    """The wave of each call of the first step."""
    return [call["wave"] for call in turn["calls"] if call["step"] == 0]


def contents(turn: dict[str, Any], step: int = 0) -> list[str]:
    """The content of each call of a step, as the model reads it."""
    return [call["content"] for call in turn["calls"] if call["step"] == step]
