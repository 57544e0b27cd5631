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
"""Every category."""


class TurnRunner(Protocol):
    """Works one task as one turn."""

    def run(self, agent: str, task: WorkloadTask) -> FinishedTurn:
        """Start the turn and return it when it has ended, or as it stands when its time is long over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep found: a verdict a task, in the tasks' order, and how long the turns took in all."""

    workload: str
    expected: int
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every task did exactly what its replay did."""
        return len(self.verdicts) == self.expected and all(verdict.passed for verdict in self.verdicts)


class Sweep:
    """One workload's tasks, with their replays under way.

    Args:
        workload: Which.
        half: Which part of it.
        concurrency: How many turns are in flight at once.
        limit: Only so many tasks, the first ones.
        category: Only tasks of this category; the workload's first one if ``None``.

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
        # One thread: a replay is pure computing. It begins while the stack starts and stays ahead of the turns.
        self._replayer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replay")
        self._replays = {task.id: self._replayer.submit(workload.replay, task) for task in self.tasks}

    def finish_replays(self) -> None:
        """Wait for every replay. They hold the interpreter for long: turns in this process are better run after."""
        wait(self._replays.values())

    def run(self, runner: TurnRunner, watcher: Watcher[WorkloadTask, Verdict]) -> SweepResult:
        """Run every task; the first error that is not a task's own, or a Ctrl-C, ends the sweep at once."""
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
