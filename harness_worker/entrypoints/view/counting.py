"""Shows the progress of many tasks: as a bar in a terminal, or as a plain line every few seconds in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from harness_worker.entrypoints.plain import one_line
from harness_worker.entrypoints.view.figures import duration

if TYPE_CHECKING:
    from harness_worker.ports import Clock

QUIET_S: Final = 5.0
"""Seconds between two lines in a pipe."""


class CountingProgress:
    """Counts tasks that are done, and reports each that failed. A context manager.

    Args:
        console: Where to draw.
        clock: For pacing the plain lines, and for estimating the time left.
        name: The name of the work.
        total: How many tasks there are.
        noun: The word for one task.
    """

    def __init__(self, console: Console, clock: Clock, name: str, total: int, noun: str = "task") -> None:
        self._console = console
        self._clock = clock
        self._total = total
        self._done = 0
        self._failed = 0
        self._began = self._told_at = clock.monotonic()
        self._bar = Progress(*_columns(), console=console, transient=True) if console.is_terminal else None
        self._name = one_line(name)
        self._noun = noun
        self._task = self._bar.add_task(self._name, total=total) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def count(self, task: str, why: str | None) -> None:
        """Count one more task as done; ``why`` says how it failed, if it did."""
        self._done += 1
        if why is not None:
            self._failed += 1
            told = f"{self._noun} {one_line(task)}: {one_line(why)}"
            self._console.print(told, style="red", soft_wrap=True)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock.monotonic()
        if self._bar is None and (now - self._told_at >= QUIET_S or self._done == self._total):
            self._told_at = now
            done = f"{self._done} of {self._total} {self._noun}s done, {self._failed} failed"
            self._console.print(f"{self._name}: {done}{self._left(now)}", soft_wrap=True)

    def _left(self, now: float) -> str:
        """How long the rest will take at the speed so far."""
        if not 0 < self._done < self._total:
            return ""
        return f", about {duration((now - self._began) * (self._total - self._done) / self._done)} left"


def _columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn | TimeRemainingColumn, ...]:
    elapsed, remaining = TimeElapsedColumn(), TimeRemainingColumn()
    return TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), elapsed, remaining
