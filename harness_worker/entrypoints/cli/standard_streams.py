"""The standard streams as this process got them: closed, full, left by their reader, or not of UTF-8."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from harness_worker.entrypoints.plain import plain
from harness_worker.wire import JsonObject


def take_any_text() -> None:
    """Have stdout write what its encoding cannot show as escapes, as stderr does, and what was closed lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed; its number must not become that of a file or a connection
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportUnknownMemberType] - of any buffer


def lost_output() -> OSError | None:
    """Why not all that was written to stdout got there, if so; nothing more is written there then."""
    try:
        sys.stdout.flush()
    except OSError as lost:
        _lead_nowhere(sys.stdout)
        return lost
    return None


def tell(message: str) -> None:
    """Write a line to stderr, if it can be, without control characters: it may quote another's message."""
    try:
        sys.stderr.write(f"{plain(message)}\n")
        sys.stderr.flush()
    except OSError:
        _lead_nowhere(sys.stderr)


def tell_next(page: JsonObject) -> None:
    """Say on stderr how to list what comes after a page of the gateway's, if there is more."""
    if page["next"]:
        tell(f"there are more: --after {page['next']}")


def _lead_nowhere(stream: TextIO) -> None:
    """What the stream still holds goes to /dev/null, so that the end of the process does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
