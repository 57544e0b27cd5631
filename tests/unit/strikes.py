"""Errors at any line of our own code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar

MOST_LINES: Final = 500
"""More than a test's work executes in one file."""

T = TypeVar("T")


class Striker:
    """Raises a ``MemoryError`` before one line that a thread executes in a file.

    Args:
        file: The end of the file's path.
        at: The number of the line among those executed, from 0.
    """

    def __init__(self, file: str, at: int) -> None:
        self._file = file
        self._left = at
        self.has_struck = False

    def run(self, work: Callable[[], T]) -> T | None:
        """Do the work on this thread, and be struck; ``None`` if that ended it."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return work()
        except MemoryError:
            assert self.has_struck
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - what sys.settrace asks for
        if not frame.f_code.co_filename.endswith(f"/{self._file}"):
            return None
        if event == "line":
            self._left -= 1
            if self._left < 0 and not self.has_struck:
                self.has_struck = True
                raise MemoryError
        return self._trace
