"""Figures in words: times, ages, counts, and a turn's totals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from harness_worker.core.budget import TOKEN_CLASSES

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def duration(seconds: float) -> str:
    """A time for people: ``8 ms``, ``1.52 s``, ``2 min 5 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.995:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def age(created_at: str, now: datetime) -> str:
    """How long ago: ``3s``, ``12m``, ``5h``, ``9d``."""
    seconds = max(0, int((now - datetime.fromisoformat(created_at)).total_seconds()))
    return next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= size), "0s")


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun: ``1 step``, ``4,120 tokens``.

    Args:
        number: The number.
        noun: The singular.
        nouns: The plural; by default the singular with an ``s``.
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def tokens_of(usage: Mapping[str, Any]) -> int:
    """All tokens, of every class."""
    return sum(usage[name] for name in TOKEN_CLASSES)


def waves_of(turn: Mapping[str, Any]) -> int:
    """How many waves a turn's calls were in."""
    return len({(call["step"], call["wave"]) for call in turn["calls"]})
