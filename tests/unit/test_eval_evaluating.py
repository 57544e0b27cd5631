"""What an evaluation counts as done."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest
from rich.console import Console

from harness_worker.client.client import GatewayClient
from harness_worker.entrypoints.cli.eval.cell_runner import Asking
from harness_worker.entrypoints.cli.eval.evaluation import Evaluation, Plan
from harness_worker.entrypoints.cli.eval.results_file import ResultsFile
from harness_worker.evaluation.cells import cells_of
from harness_worker.evaluation.results import Found, Result, result_of
from tests.unit.eval_kit import case, turn

NOBODY = GatewayClient("http://nobody")
NOTHING = Asking(timeout_s=1.0, goes_on=True, include=(), on_waiting=print)


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


@pytest.mark.parametrize("edit", [{"expect": {"equals": "No."}}, {"input": "other"}])
def test_last_line_of_a_cell_is_its_result_after_an_edit_is_undone(edit: dict[str, object], tmp_path: Path) -> None:
    """The kept result follows that of the edit, once; nothing is asked again."""
    path = tmp_path / "out.jsonl"

    def passes(**members: object) -> list[bool]:
        """Whether the cell passed, line by line, after a sweep over the case with these members."""
        cases = [case(**{"expect": {"equals": "Hello."}, **members})]
        (cell,) = cells_of("s", ["clerk"], cases, 1)
        with ResultsFile(path, "s") as out:
            evaluation = Evaluation(
                Plan(sweep="s", cases=cases, repeats=1, concurrency=1, check=None, out=out), ["clerk"]
            )
            if not evaluation.done:
                answer = "Hello." if members == {} else "Something else."
                evaluation.found(cell, Found(turns=(turn(answer),)))
            evaluation.run(NOBODY, NOTHING, Console(file=io.StringIO()))
        return [Result.model_validate_json(line).passed for line in path.read_text().splitlines()]

    assert passes() == [True]
    assert passes(**edit) == [True, False]
    assert passes() == [True, False, True]
    assert passes() == [True, False, True]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_latest_retry_of_a_cell_is_the_one_that_counts(status: str, tmp_path: Path) -> None:
    """Without further retries, and whatever is expected of it by now."""

    def left(expect: str, *, retry_failed: bool) -> list[str]:
        """The sessions of the cells that such a sweep would ask; the one that is asked fails."""
        cases = [case(id="a", expect={"equals": expect})]
        with ResultsFile(tmp_path / "out.jsonl", "s") as out:
            plan = Plan(
                sweep="s", cases=cases, repeats=1, concurrency=1, check=None, out=out, retry_failed=retry_failed
            )
            cells = Evaluation(plan, ["clerk"]).left
            for cell in cells:
                out.add(result_of(cell, Found(turns=(turn(status=status),)), None))
            return [cell.session_id for cell in cells]

    (first,) = left("Yes.", retry_failed=False)
    assert left("Yes.", retry_failed=False) == []
    (second,) = left("Yes.", retry_failed=True)
    assert (second != first, left("Yes.", retry_failed=False)) == (True, [])
    assert left("No.", retry_failed=False) == [second]
    assert left("No.", retry_failed=True) not in ([], [first], [second])


def test_cell_that_was_to_fail_is_not_asked_again(tmp_path: Path) -> None:
    """Its case expects that end, so it passed; otherwise every retry would ask it anew."""
    failed, asked = Found(turns=(turn(status="failed", stop_reason="model_error"),)), list[int]()
    for _ in range(2):
        with ResultsFile(tmp_path / "out.jsonl", "s") as out:
            cases = [case(id="a", expect={"stop_reason": "model_error"})]
            plan = Plan(sweep="s", cases=cases, repeats=1, concurrency=1, check=None, out=out, retry_failed=True)
            left = Evaluation(plan, ["clerk"]).left
            asked.append(len(left))
            for cell in left:
                out.add(result_of(cell, failed, None))
    assert asked == [1, 0]
