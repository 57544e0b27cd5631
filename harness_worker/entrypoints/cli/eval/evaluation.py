"""A sweep of ``harness eval``, from the plan to a result of each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import GatewayClient
from harness_worker.entrypoints.cli.eval.cell_runner import Asking, CellRunner, run_cells
from harness_worker.entrypoints.cli.eval.results_file import ResultsFile
from harness_worker.entrypoints.view.counting import CountingProgress
from harness_worker.evaluation.cases import Case
from harness_worker.evaluation.cells import Cell, cells_of
from harness_worker.evaluation.checking import Check
from harness_worker.evaluation.results import Found, Result, result_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to ask.

    Args:
        sweep: The sweep's name.
        cases: The cases.
        repeats: How many times each case is asked.
        concurrency: How many cells are asked at once.
        check: The user's own check.
        out: The file of results.
        retry_failed: Whether cells whose turns failed or were cancelled, by that file, are asked again.
    """

    sweep: str
    cases: Sequence[Case]
    repeats: int
    concurrency: int
    check: Check | None
    out: ResultsFile | None
    retry_failed: bool = False


class Evaluation:
    """A plan for these agents, and the results of its cells so far.

    Args:
        plan: What to ask.
        agents: The agents to ask.
    """

    def __init__(self, plan: Plan, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self._plan = plan
        self._cells = [_latest(cell, plan) for cell in cells_of(plan.sweep, agents, plan.cases, plan.repeats)]
        self._results: dict[str, Result] = {}
        for cell in self._cells:
            if plan.out is not None and (kept := plan.out.kept(cell, plan.check.name if plan.check else None)):
                self._results[cell.asked] = kept

    @property
    def done(self) -> int:
        """How many cells are settled."""
        return sum(result.is_settled for result in self._results.values())

    @property
    def total(self) -> int:
        """How many cells there are."""
        return len(self._cells)

    @property
    def results(self) -> tuple[Result, ...]:
        """The results so far, one for each cell, in the cells' order."""
        return tuple(self._results[cell.asked] for cell in self._cells if cell.asked in self._results)

    @property
    def left(self) -> tuple[Cell, ...]:
        """The cells without a result."""
        return tuple(cell for cell in self._cells if cell.asked not in self._results)

    def run(self, client: GatewayClient, asking: Asking, console: Console) -> None:
        """Take up what there is, and ask the cells that are left.

        Raises:
            StackUnreachable: The stack went away, and did not come back.
            RequestRefused: The gateway refuses for a reason that is not a single cell's.
            OSError: A result cannot be written.
        """
        self.take_up()
        left = self.left
        with CountingProgress(console, SystemClock(), self._plan.sweep, len(left), "cell") as progress:
            watcher = _Watcher(self, progress)
            run_cells(CellRunner(client, asking), left, watcher, self._plan.concurrency)

    def take_up(self) -> None:
        """Make sure that the results that count are last in their file.

        Raises:
            OSError: One cannot be written.
        """
        if self._plan.out is not None:
            for kept in self.results:
                self._plan.out.make_last(kept)

    def found(self, cell: Cell, found: Found) -> Result:
        """Judge what was observed of a cell, and keep the result; it counts once it is written.

        Raises:
            OSError: It cannot be written.
        """
        result = result_of(cell, found, self._plan.check)
        if self._plan.out is not None:
            self._plan.out.add(result)
        self._results[cell.asked] = result
        return result


def _latest(cell: Cell, plan: Plan) -> Cell:
    return cell if plan.out is None else plan.out.latest(cell, retry_failed=plan.retry_failed)


class _Watcher:
    """Passes results on to an evaluation and its progress."""

    def __init__(self, evaluation: Evaluation, progress: CountingProgress) -> None:
        self._evaluation = evaluation
        self._progress = progress

    def found(self, cell: Cell, found: Found) -> None:
        """One more cell has ended, or its time has."""
        result = self._evaluation.found(cell, found)
        self._progress.count(cell.name, None if result.passed else result.why[0])

    def tick(self) -> None:
        """Time has passed."""
        self._progress.tick()
