"""What became of cells, and what a sweep came to."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from harness_worker.entrypoints.view.eval_report import SHOWN, agent_table, failure_lines
from harness_worker.evaluation.checking import Check
from harness_worker.evaluation.results import Found, Result, result_of
from harness_worker.evaluation.summary import EvalSweep, summary
from tests.unit.eval_kit import cell, score, turn


def result(passed: bool = True, case_id: str = "c", repeat: int = 1, **members: object) -> Result:
    """What became of one cell."""
    ended = turn("yes" if passed else "no", **members)
    return result_of(cell(repeat=repeat, id=case_id, expect={"equals": "yes"}), Found(turns=(ended,)), None)


def figures(*results: Result, repeats: int = 1, threshold: float = 1.0) -> dict[str, Any]:
    """What they came to."""
    return summary(EvalSweep(name="s", agents=("clerk",), repeats=repeats, threshold=threshold, results=results))


def test_result_survives_its_line() -> None:
    """A line that is read again is the result; whole numbers stay whole."""
    found = result(scores=[score("relevance", 0.5)])
    assert Result.model_validate_json(found.model_dump_json()) == found
    assert '"steps":2,' in found.model_dump_json()


def test_result_of_several_turns_is_that_of_the_last() -> None:
    """What they used and how long they ran is added up."""
    asked = cell(input=["one", "two"], expect={"equals": "two"})
    found = result_of(asked, Found(turns=(turn("one", id="t1"), turn("two", id="t2"))), None)
    assert (found.passed, found.turn_id, found.output_text) == (True, "t2", "two")
    assert (found.usage["steps"], found.seconds) == (4, 5.0)


def test_conversation_that_is_cut_short_fails() -> None:
    """It says at which turn, and nothing of what the last one should have been."""
    asked = cell(input=["one", "two"], expect={"equals": "two"})
    cut = turn("", status="failed", stop_reason="model_error")
    assert result_of(asked, Found(turns=(cut,)), None).why == ("turn 1 of 2 ended as failed (model_error)",)


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"status": "running", "stop_reason": None}, "the turn is still running"),
        (
            {"status": "requires_action", "stop_reason": None, "required_actions": [{"tool": "refund"}]},
            "the turn waits for a person to approve refund",
        ),
        (
            {"status": "running", "stop_reason": None, "subagent_actions": [{"tool": "refund"}]},
            "the turn waits for a person to approve refund",
        ),
    ],
)
def test_turn_that_is_not_over_is_not_settled(members: dict[str, Any], told: str) -> None:
    """It failed for now, no check has looked at it, and the same sweep takes it up again."""
    found = result_of(cell(), Found(turns=(turn(**members),)), Check(name="m:f", fn=lambda _c, _t: True))
    assert (found.passed, found.is_settled, found.why, found.scores) == (False, False, (told,), ())


def test_score_that_is_due_is_not_settled() -> None:
    """A judge that has given up has spoken; one that is late may still."""
    assert not result(scores=[score("relevance", None, at=None)]).is_settled
    assert result(scores=[score("relevance", None, error="gave up")]).is_settled


def test_refused_cell_fails_in_words() -> None:
    """Also one whose first turn was made; it is asked again next time."""
    found = result_of(cell(), Found(turns=(), refused="too large"), None)
    assert (found.passed, found.status, found.is_settled) == (False, "refused", False)
    assert found.why == ("the gateway does not take it: too large",)
    assert result_of(cell(), Found(turns=(turn(),), refused="too large"), None).status == "refused"


@pytest.mark.parametrize(
    ("said", "why"),
    [(0.5, ()), (0.49, ("m:f scored 0.49",)), ((False, "too long"), ("m:f scored 0: too long",))],
)
def test_check_decides_too(said: object, why: tuple[str, ...]) -> None:
    """Half a point passes."""
    assert result_of(cell(), Found(turns=(turn(),)), Check(name="m:f", fn=lambda _c, _t: said)).why == why


def test_check_that_raises_fails_the_cell() -> None:
    """In words; the turn itself was fine."""
    found = result_of(cell(), Found(turns=(turn(),)), Check(name="m:f", fn=lambda _c, _t: 1 / 0))
    assert found.why == ("m:f raised ZeroDivisionError: division by zero",)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6))
def test_summary_counts_cells_and_cases(cases: list[list[bool]]) -> None:
    """pass@k is of cases that passed in any of k repeats, pass^k of those that passed in all."""
    results = [result(ok, str(n), repeat) for n, oks in enumerate(cases) for repeat, ok in enumerate(oks, start=1)]
    found = figures(*results, repeats=3, threshold=0.5)
    (agent,) = found["agents"]
    passed = sum(map(sum, cases))
    assert (agent["cells"], agent["passed"]) == (3 * len(cases), passed)
    assert agent["pass_at_k"] == sum(map(any, cases)) / len(cases)
    assert agent["pass_hat_k"] == sum(map(all, cases)) / len(cases)
    assert agent["pass_hat_k"] <= agent["pass_rate"] <= agent["pass_at_k"]
    assert found["passed"] is (passed / (3 * len(cases)) >= 0.5)
    assert len(found["failures"]) == 3 * len(cases) - passed


def test_summary_holds_every_agent_to_the_threshold() -> None:
    """One that fails fails the sweep."""
    good, bad = result(), result_of(cell(agent="other"), Found(turns=(turn(status="failed"),)), None)
    sweep = EvalSweep(name="s", agents=("clerk", "other"), repeats=1, threshold=0.5, results=(good, bad))
    found = summary(sweep)
    assert [agent["pass_rate"] for agent in found["agents"]] == [1.0, 0.0]
    assert not found["passed"]


def test_summary_adds_up_what_only_some_lines_count() -> None:
    """Lines of another version, before or after those of this one."""
    here = result()
    there = here.model_copy(update={"usage": {**here.usage, "searches": 3}})
    for results in ((here, there), (there, here)):
        (agent,) = figures(*results)["agents"]
        assert (agent["usage"]["steps"], agent["usage"]["searches"]) == (4, 3)


def test_summary_has_means_totals_and_times() -> None:
    """Means of the scores that were given; what never ran has no time; percentiles are times that there were."""
    ends = [f"2026-01-01T00:00:{second:02}.000000Z" for second in range(1, 21)]
    ran = [result(case_id=end, finished_at=end, scores=[score("relevance", n / 20)]) for n, end in enumerate(ends)]
    unscored = [score("relevance", None, error="gone")]
    never = result(case_id="x", started_at=None, status="cancelled", stop_reason="cancelled", scores=unscored)
    (agent,) = figures(*ran, never)["agents"]
    assert agent["scores"] == {"relevance": {"mean": pytest.approx(0.475), "scored": 20, "missing": 1}}
    assert agent["seconds"] == {"p50": 10.0, "p95": 19.0}
    assert agent["usage"]["steps"] == 42
    assert agent["not_completed"] == {"cancelled (cancelled)": 1}


def test_report_names_no_turn_where_there_is_none() -> None:
    """A refused cell has none to be shown; beside one that has, the hint stands."""
    refused = result_of(cell(), Found(turns=(), refused="too large"), None)
    told = [line.plain for line in failure_lines(figures(refused)["failures"])]
    assert told == ["c of clerk, repeat 1", "  the gateway does not take it: too large"]
    hint = [*failure_lines(figures(refused, result(False))["failures"])][-1]
    assert hint.plain == "harness turns show TURN says what a turn did"


def test_report_says_how_to_start_a_stack_that_is_gone() -> None:
    """What shows a turn needs a stack, and finds it where the sweep ran."""
    hint = [*failure_lines(figures(result(False))["failures"], " --home h", "harness up --app a:b --home h")][-1]
    assert hint.plain.startswith("harness turns show TURN --home h says")
    assert hint.plain.endswith(", once its stack runs again: harness up --app a:b --home h")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_report_says_how_to_ask_again_what_failed_by_itself(status: str) -> None:
    """A cell that was answered wrongly is not asked again, so its report has no such hint."""
    words = "--name s --retry-failed"
    void = result(False, status=status, stop_reason="internal")
    told = [line.plain for line in failure_lines(figures(void)["failures"], retry=words)]
    assert f"the same command with {words} asks cells again whose turns failed or were cancelled" in told
    assert not any(words in line.plain for line in failure_lines(figures(result(False))["failures"], retry=words))


def test_report_fits_a_narrow_terminal_and_is_harmless() -> None:
    """40 columns; nothing of a case or a judge moves a cursor or is taken for markup."""
    evil = "[bold]\x1b[2J"
    results = [result(False, f"{evil}{n}", 1, scores=[score(evil, 0.5)]) for n in range(SHOWN + 2)]
    found = figures(*results, repeats=1)
    out = io.StringIO()
    console = Console(file=out, width=40)
    console.print(agent_table(found["agents"][0], 2))
    for line in failure_lines(found["failures"]):
        console.print(line)
    shown = out.getvalue()
    assert max(map(len, shown.splitlines())) <= 40
    assert "\x1b" not in shown
    assert "[bold]" in shown
    assert "… and 2 more failures" in shown
    assert "clerk: 0/22 cells passed" in shown
