"""Draws progress on a terminal, where the open line is animated, or into a pipe, which gets each line once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness_worker.entrypoints.plain import harmless
from harness_worker.entrypoints.view.columns import MAX_WIDTH
from harness_worker.entrypoints.view.lines import LABEL, draw, marks_for
from harness_worker.entrypoints.view.progress import CallCell, Line, ModelLine, Place, Progress, with_tools

INDENT: Final = 2
"""Columns left free on the left."""

SPOKEN_ROWS: Final = 4
"""How many rows of a model's text are shown while it speaks."""

QUIET_S: Final = 5.0
"""After how many silent seconds a line in a pipe says what is being waited for, unless it is a person."""

_PERSON: Final = "person"


class Screen:
    """Draws one turn. A context manager; the animated line disappears at its end.

    Args:
        console: Where to draw.
        monotonic: A monotonic clock, in seconds.
    """

    def __init__(self, console: Console, monotonic: Callable[[], float]) -> None:
        self._console = console
        self._monotonic = monotonic
        self._marks = marks_for(console.encoding)
        moves = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, transient=True, refresh_per_second=8) if moves else None
        self._drawn: set[Place] = set()
        self._last_drawn = monotonic()
        self._opened: tuple[Place | str, float] = (_awaited(Progress()), monotonic())

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @contextmanager
    def resting(self) -> Generator[None]:
        """Within the context the animated line is hidden, so that others can use the terminal."""
        if self._live is not None:
            self._live.stop()
        try:
            yield
        finally:
            if self._live is not None:
                self._live.start()

    def show(self, progress: Progress, calls: Sequence[Mapping[str, Any]]) -> None:
        """Draw the lines that have closed since the last call, and what is open now.

        Args:
            progress: Everything seen of the turn.
            calls: The turn's calls as the gateway last returned them.
        """
        told = harmless({call["call_id"]: call["content"] for call in calls if call["is_error"]})
        lines = with_tools(progress, harmless({call["call_id"]: call["tool"] for call in calls})).lines
        for line in lines:
            if line.elapsed_s is not None and line.place not in self._drawn:
                self._drawn.add(line.place)
                self._print(self._text(line, told))
        self._show_open([line for line in lines if line.elapsed_s is None], _awaited(progress))

    def _show_open(self, lines: list[Line], awaited: str) -> None:
        line = lines[-1] if lines else None
        now, opened = self._monotonic(), line.place if line else awaited
        if self._opened[0] != opened:
            self._opened = (opened, now)
        waited_s = now - self._opened[1]
        if self._live is not None:
            self._live.update(self._indented(self._moving(line, waited_s, awaited)))
        elif (line or awaited != _PERSON) and min(waited_s, now - self._last_drawn) >= QUIET_S:
            what = _what(line) if line else f"for a {awaited}"
            self._print(Text(f"waiting {what} ({waited_s:.0f} s)", style="dim"))

    def _moving(self, line: Line | None, waited_s: float, awaited: str) -> Text:
        if line is None:
            return Text(f"waiting for a {awaited}", style="dim")
        if isinstance(line, ModelLine) and line.text:
            return self._speaking(line)
        return Text.assemble(self._text(line, {}), (f"   {waited_s:.1f} s", "dim"))

    def _speaking(self, line: ModelLine) -> Text:
        """The last rows of what the model has said so far; all of it is printed once it is complete."""
        words = Text(line.text, style="italic")
        rows = words.wrap(self._console, self._width - LABEL)[-SPOKEN_ROWS:]
        labels = ("model", *[""] * (len(rows) - 1))
        return Text("\n").join(
            Text.assemble((f"{label:<{LABEL}}", "bold"), row) for label, row in zip(labels, rows, strict=True)
        )

    def _text(self, line: Line, details: Mapping[str, str]) -> Text:
        return draw(line, width=self._width, marks=self._marks, details=details)

    @property
    def _width(self) -> int:
        return min(self._console.width - INDENT, MAX_WIDTH)

    def _print(self, text: Text) -> None:
        if self._live is not None:
            self._live.update(Text(), refresh=True)  # else a closed line would still be drawn as open below itself
        self._console.print(self._indented(text), soft_wrap=True)
        self._last_drawn = self._monotonic()

    def _indented(self, text: Text) -> Text:
        return Text("\n").join(Text(" " * INDENT).append_text(row) for row in text.split("\n"))


def _awaited(progress: Progress) -> str:
    """What a turn waits for while no line is open; before it begins, others of its session or tenant may be first."""
    if progress.asked:
        return _PERSON
    return "worker" if progress.lines else "worker or earlier turns"


def _what(line: Line) -> str:
    if isinstance(line, ModelLine):
        return "for the model"
    running: list[CallCell] = [cell for cell in line.calls if cell.outcome is None]
    return "for " + ", ".join(cell.name for cell in running or line.calls)
