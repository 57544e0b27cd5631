"""What commands print: JSON documents for programs, text for people."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from rich.console import Console

from harness_worker.entrypoints.plain import plain

_LEAST_WIDTH: Final = 40
_USUAL_WIDTH: Final = 80


def write_json(document: Any) -> None:  # noqa: ANN401 - any JSON
    """Write one document on one line of stdout; in ASCII if stdout's encoding cannot represent all of it."""
    write(json.dumps(document, ensure_ascii=not sys.stdout.encoding.lower().startswith("utf")))


def write(text: str) -> None:
    """Write text and one newline to stdout, and flush it."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def write_words(text: str) -> None:
    """Write a user's or model's text to stdout: made harmless on a terminal, unchanged in a pipe or a file."""
    write(plain(text) if sys.stdout.isatty() else text)


def console(*, stderr: bool = False) -> Console:
    """A console of readable width that prints text as it is, even ``[red]`` or ``:x:``; no escape codes in a pipe."""
    found = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if found.width < _LEAST_WIDTH:  # COLUMNS=0 means that the width is unknown
        found.width = _LEAST_WIDTH if found.width else _USUAL_WIDTH
    return found
