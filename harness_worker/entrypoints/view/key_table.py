"""API keys as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.text import Text

from harness_worker.core.api_keys import ApiKey, KeyState
from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.columns import GAP, cut, left, widths
from harness_worker.wire import rfc3339

STYLES: Final = {KeyState.ACTIVE: "green", KeyState.EXPIRED: "yellow", KeyState.REVOKED: "dim"}
_HEAD: Final = ("key", "state", "created", "expires", "tenant", "name")
_MOST: Final = 32
_DAY: Final = len("2026-01-31")


def key_table(keys: Sequence[tuple[ApiKey, KeyState]]) -> Iterator[Text]:
    """A line per key: its id, whether it is accepted, the days of its creation and end, its tenant, its name."""
    rows = [_HEAD, *(_cells(key, state) for key, state in keys)]
    sizes = widths(rows)
    styles = ["bold", *(STYLES[state] for _, state in keys)]
    for row, style in zip(rows, styles, strict=True):
        yield Text(GAP.join(map(left, row, sizes)).rstrip(), style=style)


def _cells(key: ApiKey, state: KeyState) -> tuple[str, ...]:
    words = (cut(one_line(text), _MOST) for text in (key.tenant, key.name))
    return (key.id, state, _day(key.created_at), _day(key.expires_at), *words)


def _day(at: float | None) -> str:
    return (rfc3339(at) or "never")[:_DAY]
