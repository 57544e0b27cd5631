"""What an evaluation counts as done."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from harness_worker.entrypoints.cli.eval_results_file import ResultsFile
from harness_worker.entrypoints.cli.eval_sweep import Evaluation, Plan
from harness_worker.evaluation.cells import cells_of
from harness_worker.evaluation.results import Found, Result
from tests.unit.eval_kit import case, turn


class FullDisk(ResultsFile):
    """Room for one line."""

    lines = 0

    def add(self, result: Result) -> None:
        """Write the first one."""
        if self.lines:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().add(result)
        self.lines += 1


def test_cell_counts_once_it_is_written(tmp_path: Path) -> None:
    """What a full disk did not take is not done: the next sweep looks at it again."""
    cases = [case(id="a"), case(id="b")]
    first, second = cells_of("s", ["clerk"], cases, 1)
    with FullDisk(tmp_path / "out.jsonl", "s") as out:
        plan = Plan(sweep="s", cases=cases, repeats=1, concurrency=1, check=None, out=out)
        evaluation = Evaluation(plan, ["clerk"])
        evaluation.found(first, Found(turns=(turn(),)))
        with pytest.raises(OSError, match="No space left"):
            evaluation.found(second, Found(turns=(turn(),)))
    assert (evaluation.done, evaluation.total, len(evaluation.results)) == (1, 2, 1)
