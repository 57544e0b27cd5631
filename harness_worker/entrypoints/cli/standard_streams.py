"""Deals with standard streams that are closed, full, abandoned by their reader, or not in UTF-8."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

from harness_worker.entrypoints.plain import plain


def take_any_text() -> None:
    """Make stdout escape what its encoding cannot represent, as stderr does, and closed streams lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed; no file or connection must get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportUnknownMemberType] - of any buffer


class _Log(io.TextIOWrapper):
    """What an application prints: a line at a time, and lost without an error if nobody reads the log any more.

    It stays open whoever closes it, because the worker goes on writing.
    """

    def write(self, text: str, /) -> int:
        """See ``io.TextIOBase.write``."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """See ``io.IOBase.flush``."""
        with suppress(OSError):
            super().flush()

    def close(self) -> None:
        """See ``io.IOBase.close``."""
        self.flush()


def print_to_stderr() -> None:
    """Send to stderr, as to a log, what is printed from now on, and also what processes that are started print."""
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout, sys.stderr = _log(sys.stdout), _log(sys.stderr)


@contextmanager
def keeping_streams() -> Generator[None]:
    """Put stdout and stderr back if something within the context took them away, or put there what cannot be used."""
    stdout, stderr = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = _usable(sys.stdout, stdout), _usable(sys.stderr, stderr)


def _usable(now: TextIO, before: TextIO) -> TextIO:
    try:
        now.flush()
    except Exception:  # noqa: BLE001 - it may be anything
        return before
    return now


def _log(stream: TextIO) -> _Log:
    binary = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115 - as long as the process
    return _Log(binary, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)


def lost_output() -> OSError | None:
    """Why some output to stdout was lost, if so; then nothing more is written there."""
    try:
        sys.stdout.flush()
    except OSError as lost:
        _lead_nowhere(sys.stdout)
        return lost
    return None


def tell(message: str) -> None:
    """Write a line to stderr, if possible, without control characters, because it may quote somebody's message."""
    try:
        sys.stderr.write(f"{plain(message)}\n")
        sys.stderr.flush()
    except OSError:
        _lead_nowhere(sys.stderr)


def _lead_nowhere(stream: TextIO) -> None:
    """Send what the stream still holds to /dev/null, so that the process does not fail on it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
