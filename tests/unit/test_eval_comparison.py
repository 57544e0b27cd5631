"""What changed from one sweep to another."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness_worker.entrypoints.cli.program import app
from harness_worker.errors import ConfigError
from harness_worker.evaluation.comparison import comparison
from harness_worker.evaluation.results import Found, Result, result_of
from tests.unit.eval_kit import cell, score, turn

HELLO = {"contains": "Hello"}


def found(case: str, *passes: bool, sweep: str = "s", agent: str = "clerk", **members: Any) -> list[Result]:  # noqa: ANN401 - a turn's
    """A case that was asked so often."""
    expect = members.pop("expect", HELLO)
    return [
        result_of(
            cell(repeat=repeat, sweep=sweep, agent=agent, id=case, expect=expect),
            Found(turns=(turn("Hello." if passed else "Bye.", **members),)),
            None,
        )
        for repeat, passed in enumerate(passes, start=1)
    ]


def written(path: Path, *results: list[Result]) -> Path:
    """A file of them."""
    path.write_text("".join(result.model_dump_json() + "\n" for case in results for result in case))
    return path


def test_differences_are_paired_by_case() -> None:
    """The mean over cases of the mean over repeats, and the standard error of the mean difference."""
    before = [*found("a", True, True), *found("b", True, True), *found("c", False, True)]
    after = [*found("a", False, False), *found("b", True, True), *found("c", True, True)]
    compared = comparison(before, after)
    assert compared["figures"]["passed"] == {
        "before": pytest.approx(5 / 6),
        "after": pytest.approx(2 / 3),
        "difference": pytest.approx((-1 + 0 + 0.5) / 3),
        "standard_error": pytest.approx(math.sqrt(((-5 / 6) ** 2 + (1 / 6) ** 2 + (4 / 6) ** 2) / 2 / 3)),
        "cases": 3,
    }
    assert [case["case"] for case in compared["worse"]] == ["a"]
    assert [case["case"] for case in compared["better"]] == ["c"]


def test_repeats_may_differ() -> None:
    """A case counts as one, however often it was asked."""
    compared = comparison([*found("a", True), *found("b", True)], [*found("a", True, False), *found("b", True)])
    assert (compared["figures"]["passed"]["before"], compared["figures"]["passed"]["after"]) == (1.0, 0.75)
    (worse,) = compared["worse"]
    assert (worse["before"], worse["after"]) == ({"passed": 1, "cells": 1}, {"passed": 1, "cells": 2})
    assert worse["why"] == ["the answer does not contain 'Hello'"]


def test_one_case_has_no_standard_error() -> None:
    """Nothing is known of how cases vary."""
    figure = comparison(found("a", True), found("a", False))["figures"]["passed"]
    assert (figure["difference"], figure["standard_error"]) == (-1.0, None)


def test_only_shared_cases_are_compared() -> None:
    """The others are named, as are those of which something else is expected now."""
    before = [*found("gone", True), *found("same", True), *found("edited", True, expect={"contains": "Bye"})]
    compared = comparison(before, [*found("edited", True), *found("same", True), *found("new", False)])
    assert (compared["only_before"], compared["only_after"]) == (["gone"], ["new"])
    assert compared["expected_otherwise"] == ["edited"]
    assert compared["figures"]["passed"]["after"] == 1.0


def test_scores_are_compared_where_both_have_one() -> None:
    """A judge that failed once is left out of that case; one that only one side has is left out."""
    before = [
        *found("a", True, scores=[score("brief", 0.5), score("old", 1.0)]),
        *found("b", True, scores=[score("brief", 0.1)]),
    ]
    after = [
        *found("a", True, scores=[score("brief", 0.75)]),
        *found("b", True, scores=[score("brief", None, error="no")]),
    ]
    assert comparison(before, after)["scores"] == {
        "brief": {"before": 0.5, "after": 0.75, "difference": 0.25, "standard_error": None, "cases": 1}
    }


def ran(*arguments: object, code: int = 0) -> str:
    """What the command says."""
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "80"})
    assert done.exit_code == code, done.output
    return done.output


def refused(*arguments: object) -> str:
    """Why it will not compare."""
    wrong = CliRunner().invoke(app, ["compare", *map(str, arguments)]).exception
    assert isinstance(wrong, ConfigError)
    return str(wrong)


def test_command_tells_what_got_worse(tmp_path: Path) -> None:
    """With the turn to look at; the last line of a cell counts; a torn line does not."""
    old = written(tmp_path / "old.jsonl", found("[a]", False, True), found("[a]", True), found("b", True, True))
    new = written(tmp_path / "new.jsonl", found("[a]", True, False, sweep="t"), found("b", True, True, sweep="t"))
    new.write_text(new.read_text() + '{"sweep":"t","age')
    told = ran(old, new)
    assert "clerk, s and t: 2 cases" in told
    assert "│ passed         │ 100.0 % │ 75.0 % │ -25.0 % ± 49.0 % │" in told
    assert "worse: [a], passed 2/2 then 1/2 (turn t1)\n  the answer does not contain 'Hello'\n" in told
    assert "better" not in told
    ran(old, new, "--max-worse", 1)
    ran(old, new, "--max-worse", 0, code=1)


def test_command_compares_agents(tmp_path: Path) -> None:
    """Two of one sweep, the first before the second; of two sweeps each agent with itself, or the only ones."""
    both = written(tmp_path / "r.jsonl", found("a", True, agent="small"), found("a", False, agent="large"))
    assert "small and large: 1 case " in ran(both, both, "--agent", "small", "--agent", "large")
    again = written(tmp_path / "t.jsonl", *(found("a", True, agent=agent, sweep="t") for agent in ("large", "small")))
    told = ran(both, again)
    assert "small, s and t: 1 case " in told
    assert "large, s and t: 1 case " in told
    assert "clerk and other" in ran(
        written(tmp_path / "a", found("a", True)), written(tmp_path / "b", found("a", True, agent="other"))
    )


def test_use_that_a_line_does_not_tell_is_none(tmp_path: Path) -> None:
    """Another version, or whoever edited the file, has counted nothing of it."""
    old, new = written(tmp_path / "a", found("a", True)), written(tmp_path / "b", found("a", True, sweep="t"))
    line = json.loads(old.read_text())
    old.write_text(json.dumps({**line, "usage": {}}, separators=(",", ":")) + "\n")
    assert "│ tokens " in ran(old, new)


def test_command_refuses_what_it_cannot_compare(tmp_path: Path) -> None:
    """In words, without a table."""
    clerk, other = written(tmp_path / "a", found("a", True)), written(tmp_path / "b", found("b", True, agent="other"))
    two = written(tmp_path / "c", found("a", True, agent="x"), found("a", True, agent="y"))
    mixed = written(tmp_path / "d", found("a", True), found("a", True, sweep="t"))
    empty, torn = written(tmp_path / "e"), written(tmp_path / "f", found("a", True))
    torn.write_text("{}\n")
    assert refused(clerk, other) == "no case of clerk and other is in both files: compare sweeps over the same cases"
    assert "no agent in common (clerk in the first, x, y in the second)" in refused(clerk, two)
    assert "has no results of nobody; it has those of clerk" in refused(clerk, other, "--agent", "nobody")
    assert "holds results of the sweeps s and t" in refused(clerk, mixed)
    assert "holds no results" in refused(empty, clerk)
    assert "line 1 is no result of a sweep" in refused(torn, clerk)
    edited = written(tmp_path / "g", found("a", True, scores=[score("brief", 0.5)]))
    edited.write_text(edited.read_text().replace('"judge":', '"jugde":'))
    assert "line 1 is no result of a sweep" in refused(edited, clerk)
    assert "these are the same results" in refused(two, two)
    assert "No such file" in refused(clerk, tmp_path / "nowhere")
