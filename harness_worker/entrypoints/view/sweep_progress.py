"""How a sweep's progress looks: a bar in a terminal, a plain line every few seconds in a pipe."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness_worker.entrypoints.view.plain import plain
from harness_worker.ports import Clock
from harness_worker.workloads.verdict import Verdict

QUIET_S: Final = 5.0
"""Seconds between two lines in a pipe."""


class SweepProgress:
    """Counts verdicts, and tells of each task that failed. A context manager.

    Args:
        console: Where to draw.
        clock: For the plain lines.
        name: The workload.
        total: How many tasks there are.
    """

    def __init__(self, console: Console, clock: Clock, name: str, total: int) -> None:
        self._console = console
        self._clock = clock
        self._total = total
        self._done = 0
        self._failed = 0
        self._told_at = clock.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._name = name
        self._task = self._bar.add_task(name, total=total) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def judged(self, verdict: Verdict) -> None:
        """One task more has ended."""
        self._done += 1
        if not verdict.passed:
            self._failed += 1
            self._console.print(f"task {verdict.task.id}: {plain(verdict.why[0])}", style="red", markup=False)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock.monotonic()
        if self._bar is None and (now - self._told_at >= QUIET_S or self._done == self._total):
            self._told_at = now
            self._console.print(f"{self._name}: {self._done} of {self._total} tasks done, {self._failed} failed")
