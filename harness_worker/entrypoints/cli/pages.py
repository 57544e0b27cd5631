"""Prints one page of a list."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from rich.text import Text

from harness_worker.entrypoints.cli.output import console, write, write_json
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.wire import JsonObject

Table: TypeAlias = Callable[[Sequence[JsonObject], datetime, int], Iterable[Text]]
"""The lines of a table of items, given the time to which ages are counted and the width available, in columns."""


def print_page(page: JsonObject, nouns: str, table: Table, *, quiet: bool, as_json: bool) -> None:
    """Print a page as JSON, or its ids alone, or a table; on stderr, say how to list the next one, or that it is empty.

    Args:
        page: ``{data, next}``, as the gateway gives it.
        nouns: What it lists, in the plural.
        table: Draws it.
        quiet: Whether to print only ids.
        as_json: Whether to print it as it is.
    """
    if as_json:
        write_json(page)
        return
    if quiet:
        for each in page["data"]:
            write(each["id"])
    elif page["data"]:
        out = console()
        for line in table(page["data"], datetime.fromtimestamp(time.time(), UTC), out.width):
            out.print(line, soft_wrap=True)
    else:
        tell(f"no {nouns}")
    if page["next"]:
        tell(f"there are more: --after {page['next']}")
