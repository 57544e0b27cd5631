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
    """One document on one line of stdout, of ASCII only where its encoding cannot show all."""
    write(json.dumps(document, ensure_ascii=not sys.stdout.encoding.lower().startswith("utf")))


def write(text: str) -> None:
    """Text and one newline on stdout, at once."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def write_words(text: str) -> None:
    """Somebody's text on stdout: harmless on a terminal, as it is in a pipe or a file."""
    write(plain(text) if sys.stdout.isatty() else text)


def console(*, stderr: bool = False) -> Console:
    """A console that colours nothing by itself, writes no escape codes into a pipe, and is wide enough to be read."""
    found = Console(stderr=stderr, highlight=False)
    if found.width < _LEAST_WIDTH:  # COLUMNS=0 says that nobody knows
        found.width = _LEAST_WIDTH if found.width else _USUAL_WIDTH
    return found
