"""Runs a workload's tasks through the harness, several at once, and judges each against the plain replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Protocol

from harness_worker.errors import ConfigError
from harness_worker.threads.crew import Watcher, work_through
from harness_worker.workloads.base import Half, ReplayOutcome, Workload, WorkloadTask
from harness_worker.workloads.verdict import FinishedTurn, Verdict, judge

ALL: Final = "all"
"""Stands for every category."""


class TurnRunner(Protocol):
    """Runs one task as one turn."""

    def run(self, agent: str, task: WorkloadTask) -> FinishedTurn:
        """Start the turn and return it once it has ended, or unfinished if its time is long over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The result of a sweep: a verdict for each task, in the tasks' order, and how long all turns took."""

    workload: str
    expected: int
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every task did exactly what its replay did."""
        return len(self.verdicts) == self.expected and all(verdict.passed for verdict in self.verdicts)


class Sweep:
    """One workload's tasks, with their replays running in the background.

    Args:
        workload: The workload.
        half: The part of it to run.
        concurrency: How many turns run at once.
        limit: How many tasks to run, from the first on; ``None``: all.
        category: The category of the tasks; ``None``: the workload's first one.

    Raises:
        ConfigError: The workload has no such category.
    """

    def __init__(
        self,
        workload: Workload,
        half: Half,
        concurrency: int,
        *,
        limit: int | None = None,
        category: str | None = None,
    ) -> None:
        self._workload = workload
        self._concurrency = concurrency
        held = (task for task in _of_category(workload, category) if half.holds(task.id))
        self.tasks: Sequence[WorkloadTask] = list(islice(held, limit))
        # One thread, as replays only compute. They begin while the stack starts and stay ahead of the turns.
        self._replayer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replay")
        self._replays = {task.id: self._replayer.submit(workload.replay, task) for task in self.tasks}

    def finish_replays(self) -> None:
        """Wait for every replay. They keep the interpreter busy, so turns in this process are better run afterwards."""
        wait(self._replays.values())

    def run(self, runner: TurnRunner, watcher: Watcher[WorkloadTask, Verdict]) -> SweepResult:
        """Run every task; Ctrl-C, or the first error that is not a task's own, ends the sweep at once."""
        began = time.monotonic()
        verdicts = work_through(
            self.tasks, partial(self._one, runner), watcher, concurrency=self._concurrency, name="sweep"
        )
        return SweepResult(
            workload=self._workload.name,
            expected=len(self.tasks),
            verdicts=tuple(verdicts),
            seconds=time.monotonic() - began,
        )

    def close(self) -> None:
        """Cancel the replays that have not started."""
        self._replayer.shutdown(wait=False, cancel_futures=True)

    def _one(self, runner: TurnRunner, task: WorkloadTask) -> Verdict:
        turn = runner.run(self._workload.name, task)
        replay: Future[ReplayOutcome] = self._replays[task.id]
        return judge(task, turn, replay.result(), self._workload.observed(task, turn.id))


def _of_category(workload: Workload, category: str | None) -> Sequence[WorkloadTask]:
    known = workload.categories
    if category is not None and category not in (*known, ALL):
        there = f"there are: {', '.join((*known, ALL))}" if known else "it has none"
        raise ConfigError(f"{workload.name} has no category {category!r}; {there}")
    wanted = {category or known[0]} if known and category != ALL else set(known or [""])
    return [task for task in workload.tasks() if task.category in wanted]
