"""Long sequences, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

CHUNK: Final = 500
"""The most rows of one statement; between statements the event loop serves other requests."""


def chunks_of(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """``items`` in pieces of at most ``size``."""
    return (items[first : first + size] for first in range(0, len(items), size))
