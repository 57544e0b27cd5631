"""A sweep of ``harness eval``, from the plan to a result of each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from harness_worker.adapters.clock import SystemClock
from harness_worker.entrypoints.cli.eval.cell_runner import Asking, CellRunner, run_cells
from harness_worker.entrypoints.cli.eval.results_file import ResultsFile
from harness_worker.entrypoints.gateway_client.client import GatewayClient
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
        repeats: How often each is asked.
        concurrency: How many cells are in flight at once.
        check: A check of the user's own.
        out: Where results are kept.
    """

    sweep: str
    cases: Sequence[Case]
    repeats: int
    concurrency: int
    check: Check | None
    out: ResultsFile | None


class Evaluation:
    """A plan for these agents, and what is known of its cells by now.

    Args:
        plan: What to ask.
        agents: Whom.
    """

    def __init__(self, plan: Plan, agents: Sequence[str]) -> None:
        self._plan = plan
        self._cells = list(cells_of(plan.sweep, agents, plan.cases, plan.repeats))
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
        """One a cell, in their order, as far as it came."""
        return tuple(self._results[cell.asked] for cell in self._cells if cell.asked in self._results)

    def run(self, client: GatewayClient, asking: Asking, console: Console) -> None:
        """Ask what is left, once the results that are kept are those that count in their file.

        Raises:
            StackUnreachable: The stack went away, and did not come back.
            RequestRefused: It refuses what is no single cell's fault.
            OSError: A result cannot be written.
        """
        if self._plan.out is not None:
            for kept in self.results:
                self._plan.out.make_last(kept)
        left = [cell for cell in self._cells if cell.asked not in self._results]
        with CountingProgress(console, SystemClock(), self._plan.sweep, len(left), "cell") as progress:
            watcher = _Watcher(self, progress)
            run_cells(CellRunner(client, asking), left, watcher, self._plan.concurrency)

    def found(self, cell: Cell, found: Found) -> Result:
        """Judge what was seen of a cell, and keep it; it counts once it is written.

        Raises:
            OSError: It cannot be written.
        """
        result = result_of(cell, found, self._plan.check)
        if self._plan.out is not None:
            self._plan.out.add(result)
        self._results[cell.asked] = result
        return result


class _Watcher:
    """Reports to an evaluation and its progress what was found."""

    def __init__(self, evaluation: Evaluation, progress: CountingProgress) -> None:
        self._evaluation = evaluation
        self._progress = progress

    def found(self, cell: Cell, found: Found) -> None:
        """One cell more is over, or its time is."""
        result = self._evaluation.found(cell, found)
        self._progress.count(cell.name, None if result.passed else result.why[0])

    def tick(self) -> None:
        """Time has passed."""
        self._progress.tick()
