"""Draws one line of progress as styled text that fits a width; escape codes are only used in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.columns import MAX_WIDTH, cut, wrapped
from harness_worker.entrypoints.view.figures import counted, duration, tokens_of, waves_of
from harness_worker.entrypoints.view.progress import CallCell, Line, ModelLine

LABEL: Final = 8
ELAPSED: Final = 9
GAP: Final = "   "
DETAIL_LINES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The signs for how a call ended, and their styles."""

    ok: str
    bad: str
    denied: str
    running: str

    def of(self, outcome: str | None, *, is_error: bool) -> tuple[str, str]:
        """The sign for an outcome, named by its class, or for a call that runs; and its style."""
        if outcome is None:
            return self.running, "yellow"
        if outcome == "ToolDenied":
            return self.denied, "magenta"
        return (self.bad, "red") if is_error else (self.ok, "green")


UNICODE_MARKS: Final = Marks(ok="✓", bad="✗", denied="⊘", running="…")
ASCII_MARKS: Final = Marks(ok="ok", bad="FAILED", denied="DENIED", running="..")


def marks_for(encoding: str) -> Marks:
    """Signs that the output's encoding can represent."""
    return UNICODE_MARKS if encoding.lower().startswith("utf") else ASCII_MARKS


def draw(line: Line, *, width: int, marks: Marks, details: Mapping[str, str] | None = None) -> Text:
    """A line of progress.

    Args:
        line: What to draw.
        width: The width available, in columns, of which at most 100 are used.
        marks: The signs.
        details: What the model was told of each failed call, by call id.
    """
    width = min(width, MAX_WIDTH)
    if isinstance(line, ModelLine):
        return _rows("model", [_spoken(line, width)], line.elapsed_s, width)
    rows = list(_packed([_cell(cell, marks) for cell in line.calls], width - LABEL - ELAPSED))
    drawn = _rows("wave", rows, line.elapsed_s, width)
    for cell in line.calls:
        if cell.is_error and details and cell.call_id in details:
            drawn.append_text(_detail(cell, details[cell.call_id], width))
    return drawn


def _spoken(line: ModelLine, width: int) -> Text:
    if line.elapsed_s is None:
        return Text("is thinking", style="dim")
    said = "answers" if line.is_answer else line.text or "asks for tools"
    return Text(cut(one_line(said), width - LABEL - ELAPSED), style="italic")


def _cell(cell: CallCell, marks: Marks) -> Text:
    mark, style = marks.of(cell.outcome, is_error=cell.is_error)
    took = duration(cell.elapsed_ms / 1000)
    match cell.outcome:
        case None:
            return Text(f"{mark} {cell.name}", style=style)
        case "ToolDenied":
            return Text(f"{mark} {cell.name} denied", style=style)
        case "ToolTimeout":
            return Text(f"{mark} {cell.name} timeout after {took}", style=style)
        case _ if cell.elapsed_ms:
            return Text.assemble((mark, style), f" {cell.name} ", (took, "dim"))
        case _:  # nobody saw its end, as of a write in doubt
            return Text.assemble((mark, style), f" {cell.name}")


def _packed(cells: Sequence[Text], width: int) -> Iterator[Text]:
    row = Text()
    for cell in cells:
        if row and row.cell_len + len(GAP) + cell.cell_len > width:
            yield row
            row = Text()
        row = Text.assemble(row, GAP, cell) if row else cell
    yield row


def _rows(label: str, rows: Sequence[Text], elapsed_s: float | None, width: int) -> Text:
    took = "" if elapsed_s is None else duration(elapsed_s)
    drawn = Text(no_wrap=True, overflow="ignore")
    for index, row in enumerate(rows):
        is_last = index == len(rows) - 1
        drawn.append(f"{'' if index else label:<{LABEL}}", style="bold")
        drawn.append_text(row)
        if is_last and took:
            drawn.append(" " * max(1, width - LABEL - row.cell_len - len(took)) + took, style="dim")
        if not is_last:
            drawn.append("\n")
    return drawn


def _detail(cell: CallCell, content: str, width: int) -> Text:
    indent = " " * (LABEL + 2)
    told = wrapped(f"{cell.name}: {content}", width - len(indent), DETAIL_LINES)
    return Text("".join(f"\n{indent}{row}" for row in told), style="dim")


def totals(turn: Mapping[str, Any], elapsed_s: float) -> str:
    """A finished turn's totals in one line."""
    usage = turn["usage"]
    counts = (
        counted(usage["steps"], "step"),
        counted(len(turn["calls"]), "call"),
        counted(waves_of(turn), "wave"),
        counted(tokens_of(usage), "token"),
        f"${usage['dollars']:.4f}",
    )
    why = "" if turn["status"] == "completed" else f" ({turn['stop_reason']})"
    return f"{turn['status']}{why} in {duration(elapsed_s)}: {', '.join(counts)}"
