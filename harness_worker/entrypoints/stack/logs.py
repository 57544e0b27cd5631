"""One log for several processes: each line starts with the name of the process that wrote it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Final, TextIO

from harness_worker.entrypoints.plain import plain

_COLOURS: Final[Mapping[str, str]] = {
    "up": "\x1b[1m",
    "redis": "\x1b[31m",
    "gateway": "\x1b[36m",
    "coordinator": "\x1b[32m",
    "tools": "\x1b[33m",
    "flower": "\x1b[35m",
}
_RESET: Final = "\x1b[0m"
_WIDTH: Final = max(map(len, _COLOURS))

_KEPT_LINES: Final = 50
_LONGEST_LINE_BYTES: Final = 65_536
"""Longer lines are cut into pieces, so that what a tool prints cannot fill the supervisor's memory."""


class LogWriter:
    """Writes whole prefixed lines to one stream; safe to share between threads.

    Args:
        stream: The stream to write to.
        coloured: Whether the prefixes are coloured, for people at a terminal.
    """

    def __init__(self, stream: TextIO, *, coloured: bool) -> None:
        self._stream = stream
        self._coloured = coloured
        self._lock = threading.Lock()

    def line(self, role: str, text: str) -> None:
        """Write one line, made plain. A stream that is gone is ignored: a closed terminal must not stop the stack."""
        with self._lock:
            try:
                self._stream.write(f"{self._prefix(role)} {plain(text)}\n")
                self._stream.flush()
            except (OSError, ValueError):
                return

    def _prefix(self, role: str) -> str:
        name = f"{role:<{_WIDTH}} |"
        return f"{_COLOURS[role]}{name}{_RESET}" if self._coloured and role in _COLOURS else name

    def pump(self, role: str, source: IO[bytes], keep: list[str]) -> threading.Thread:
        """Copy ``source`` line by line on a thread until it ends.

        Args:
            role: The child's role.
            source: The child's output.
            keep: Receives the latest lines, for an error message.

        Raises:
            OSError: The system cannot start a thread; ``source`` is closed.
        """
        thread = threading.Thread(target=self._copy, args=(role, source, keep), name=f"log-{role}", daemon=True)
        try:
            thread.start()
        except RuntimeError as refused:
            source.close()
            raise OSError(errno.EAGAIN, str(refused)) from refused
        return thread

    def _copy(self, role: str, source: IO[bytes], keep: list[str]) -> None:
        with source:
            goes_on = True
            while goes_on:
                with suppress(MemoryError):  # only that line is lost
                    goes_on = self._copy_line(role, source, keep)

    def _copy_line(self, role: str, source: IO[bytes], keep: list[str]) -> bool:
        """Copy the next line; return whether there was one."""
        raw = source.readline(_LONGEST_LINE_BYTES)
        if raw:
            text = raw.decode(errors="replace").rstrip()
            keep.append(text)
            del keep[:-_KEPT_LINES]
            self.line(role, text)
        return bool(raw)
