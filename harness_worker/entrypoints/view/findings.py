"""Findings as lines that fit a width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from harness_worker.entrypoints.doctor.finding import Finding, State
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.columns import MAX_WIDTH, wrapped

LABEL: Final = 11
_SIGNS: Final = {State.OK: ("✓", "ok"), State.WARNING: ("!", "!!"), State.WRONG: ("✗", "NO")}
_STYLES: Final = {State.OK: "green", State.WARNING: "yellow", State.WRONG: "red"}


def draw_finding(finding: Finding, *, width: int, encoding: str) -> Iterator[Text]:
    """A finding's lines: its sign, its name, what was found, and how to fix it."""
    sign = _SIGNS[finding.state][0 if encoding.lower().startswith("utf") else 1]
    indent = len(sign) + 1 + LABEL
    rows = _wrapped(finding.said, width - indent)
    yield Text.assemble((sign, _STYLES[finding.state]), f" {finding.name:<{LABEL}}{rows[0]}")
    for row in rows[1:]:
        yield Text(" " * indent + row)
    arrow = "→ " if len(sign) == 1 else "-> "
    for number, row in enumerate(_wrapped(finding.mend, width - indent - len(arrow)) if finding.mend else ()):
        yield Text(" " * indent + (arrow if number == 0 else " " * len(arrow)) + row, style="bold")


def _wrapped(text: str, width: int) -> list[str]:
    lines = [row for line in plain(text).splitlines() for row in wrapped(line, min(width, MAX_WIDTH))]
    return lines or [""]
