"""Sends a model's text to watchers up to about twenty times a second, instead of word by word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harness_worker.ports import Clock
from harness_worker.wire import HintType

BATCH_S: Final = 0.05
BATCH_CHARS: Final = 200
MODEL_DELTA: Final[HintType] = "model.delta"

Hint = Callable[[str, HintType, Mapping[str, Any]], None]
"""``ports.EventSink.hint``: turn, type, data."""


class Deltas:
    """Gathers pieces of text and sends them as ``model.delta`` hints ``{step, attempt, start, text}``.

    The first piece is sent at once; then hints follow at most every 50 ms, or once there are 200 characters. A hint
    with a higher ``attempt`` than the last one means that the step was asked again and its text starts again.
    ``start`` is the number of the attempt's characters before this hint, which shows whether a hint was lost.

    Args:
        hint: Sends a hint.
        clock: Times the batches.
        turn_id: The turn's id.
        step: The step of the text.
        attempt: The number of this try of the step, from 1.
    """

    def __init__(self, hint: Hint, clock: Clock, *, turn_id: str, step: int, attempt: int) -> None:
        self._hint = hint
        self._clock = clock
        self._turn_id = turn_id
        self._head = {"step": step, "attempt": attempt}
        self._pieces: list[str] = []
        self._chars = 0
        self._start = 0
        self._sent_at = float("-inf")

    def take(self, text: str) -> None:
        """Add a piece."""
        self._pieces.append(text)
        self._chars += len(text)
        if self._chars >= BATCH_CHARS or self._clock.monotonic() - self._sent_at >= BATCH_S:
            self.flush()

    def flush(self) -> None:
        """Send the pieces gathered so far."""
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces, self._chars = [], 0
        self._sent_at = self._clock.monotonic()
        start, self._start = self._start, self._start + len(text)
        self._hint(self._turn_id, MODEL_DELTA, {**self._head, "start": start, "text": text})
