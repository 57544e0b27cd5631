"""Judges: their declaration, the rules of a score that is due, and which answers are scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.core.registration.judges import CRITERIA, Score, score_of
from harness_worker.core.registration.registry import Registry
from harness_worker.core.scoring.judge_prompt import case_of, system_of, verdict_of
from harness_worker.core.scoring.scores import (
    ATTEMPTS,
    LAPSES_S,
    LONGEST_PAUSE_S,
    MOST_CHARS,
    PAUSE_S,
    SEND_GRACE_S,
    ScoreRow,
    begin_judging,
    due,
    give,
    lapse,
    miss,
    pause_left,
)
from harness_worker.errors import ConfigError
from tests.unit.builders import NOW

ROW = due("turn", "brief", now=NOW)


def says(_turn: object) -> float:
    """A judge."""
    return 1.0


async def waits(_turn: object) -> float:
    """A judge that no worker can call."""
    return 1.0


def deaf() -> float:
    """A judge that takes no turn."""
    return 1.0


def strict(_turn: object, _limit: float) -> float:
    """A judge that takes more than a turn."""
    return 1.0


def scores(_turn: object) -> Iterator[float]:
    """A judge that yields."""
    yield 1.0


@pytest.mark.parametrize(
    ("name", "fn", "options", "problem"),
    [
        ("a b", says, {}, "judge 'a b': a name is 1 to 64"),
        ("brief", None, {}, "judge 'brief': give it either a function of the turn or a model"),
        ("brief", says, {"model": "m"}, "judge 'brief': give it either a function"),
        ("brief", None, {"model": " "}, "judge 'brief': model must be a model's name or 'scripted:FILE', not ' '"),
        ("brief", None, {"model": "scripted:"}, "judge 'brief': model must be"),
        ("brief", says, {"criterion": "c"}, "judge 'brief': a criterion is for a model"),
        ("brief", waits, {}, "judge 'brief': async functions are refused"),
        ("brief", deaf, {}, r"its function must take one argument, the turn, but its parameters are \(\)"),
        ("brief", strict, {}, "judge 'brief': its function must take one argument, the turn, but"),
        ("brief", scores, {}, "judge 'brief': its function must return what it says, but it yields"),
        ("brief", 7, {}, "judge 'brief': 7 is not a function"),
        ("brief", None, {"model": "m"}, "judge 'brief': say what the model is to judge by .* faithfulness, relevance"),
        ("brief", None, {"model": "m", "criterion": 5}, "judge 'brief': criterion must be a string, not int"),
        ("brief", says, {"timeout_s": 301}, "judge 'brief': timeout_s must be seconds above 0 and at most 300"),
        ("brief", says, {"timeout_s": True}, "judge 'brief': timeout_s must be seconds"),
    ],
)
def test_judge_that_cannot_work_is_refused(name: str, fn: Any, options: dict[str, Any], problem: str) -> None:  # noqa: ANN401
    """It is refused when it is declared, with its name and what to change."""
    with pytest.raises(ConfigError, match=problem):
        Registry().judge(name, fn, **options)


def test_criterion_is_text_that_a_provider_takes() -> None:
    """Like an agent's system text: a lone surrogate would fail every request."""
    registry = Registry()
    registry.judge("brief", model="m", criterion="Is it brief\0\ud800?")
    assert registry.judges["brief"].criterion == "Is it brief\ufffd\ufffd?"


def test_judge_of_an_agent_must_be_known_once() -> None:
    """A wrong name is refused when the agent is declared, and so is a name that is given twice."""
    registry = Registry()
    assert registry.judge("brief", says) == "brief"
    with pytest.raises(ConfigError, match="judge 'brief' is declared twice"):
        registry.judge("brief", says)
    with pytest.raises(ConfigError, match="agent 'a': unknown judge 'breif'; declare it first; there are: brief"):
        registry.agent("a", model="m", judges=["breif"])
    with pytest.raises(ConfigError, match="agent 'a': judge 'brief' is listed twice"):
        registry.agent("a", model="m", judges=["brief", "brief"])


@pytest.mark.parametrize("name", ["faithfulness", "relevance"])
def test_built_in_judges_need_a_model_only(name: str) -> None:
    """They have criteria, which others may replace."""
    registry = Registry()
    registry.judge(name, model="m")
    assert registry.judges[name].criterion == CRITERIA[name]
    other = Registry()
    other.judge(name, model="m", criterion="mine")
    assert other.judges[name].criterion == "mine"


def test_models_of_judges_are_needed_too() -> None:
    """A worker makes clients for the models of agents and of judges."""
    registry = Registry()
    registry.judge("relevance", model="j")
    registry.agent("a", model="m")
    assert sorted(registry.models) == ["j", "m"]


@pytest.mark.parametrize(
    ("said", "score"), [(1, Score(1.0)), (0.25, Score(0.25)), (Score(0, "bad"), Score(0.0, "bad"))]
)
def test_number_from_0_to_1_is_a_score(said: object, score: Score) -> None:
    """A reason may be given with it."""
    assert score_of(said) == score


@pytest.mark.parametrize("said", [True, None, "0.5", 1.01, -0.1, float("nan"), Score(2.0), (0.5, "why")])
def test_anything_else_is_none(said: object) -> None:
    """The message says what a score is."""
    with pytest.raises(ValueError, match="a score is a number from 0 to 1"):
        score_of(said)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 0.5, "reason": "so so"}', Score(0.5, "so so")),
        ('Here:\n```json\n{"score": 1}\n```', Score(1.0)),
        ('{"score": 0, "reason": null}', Score(0.0)),
    ],
)
def test_verdict_is_the_object_in_a_reply(text: str, score: Score) -> None:
    """The text around the object, which models like to add, is ignored."""
    assert verdict_of(text) == score


DEEP = pytest.param('{"score":' * 5_000 + "}", id="deep")


@pytest.mark.parametrize("text", ["", "0.5", "{}", '{"score": "high"}', '{"score": 7}', "{", '["score"]', DEEP])
def test_reply_without_a_score_is_no_verdict(text: str) -> None:
    """Such a reply counts as a failure of the judge."""
    with pytest.raises(ValueError, match="score"):
        verdict_of(text)


@given(st.text(), st.lists(st.text()), st.text())
def test_case_holds_whatever_was_said(question: str, evidence: list[str], answer: str) -> None:
    """It is JSON, so that no text in it can pass for something else."""
    assert json.loads(case_of(question, evidence, answer)) == {
        "question": question,
        "evidence": evidence,
        "answer": answer,
    }
    assert "{x}" in system_of("{x}")


# --- a score that is due


def claimed(row: ScoreRow, now: float = NOW) -> ScoreRow:
    """The row after an attempt has begun."""
    after, attempt = begin_judging(row, now, judge_s=30.0)
    assert attempt == after.attempt == row.attempt + 1
    return after


def test_due_score_leaves_the_message_some_time() -> None:
    """Another message is sent only after that time."""
    assert (ROW.due_at, ROW.attempt, ROW.at) == (NOW + SEND_GRACE_S, 0, None)


def test_one_judges_at_a_time() -> None:
    """A second message changes nothing as long as the first attempt may be alive."""
    row = claimed(ROW)
    assert (row.due_at, row.lease_until) == (NOW + 35.0, NOW + 35.0)
    assert begin_judging(row, NOW + 35.0, judge_s=30.0) == (row, None)
    assert claimed(row, NOW + 35.1).attempt == 2


def test_word_is_taken_once() -> None:
    """The score stands, and nobody need look at it again."""
    row, taken = give(claimed(ROW), NOW + 1, attempt=1, score=Score(0.5, "so\x00 so"))
    assert taken
    assert (row.score, row.reason, row.error, row.at, row.due_at) == (0.5, "so\ufffd so", None, NOW + 1, None)
    assert give(row, NOW + 2, attempt=1, score=Score(1.0)) == (row, False)
    assert miss(row, NOW + 2, attempt=1, why="no") == (row, False)
    assert begin_judging(row, NOW + 99, judge_s=30.0) == (row, None)


def test_judging_without_a_score_is_over_too() -> None:
    """A model that was asked what to remember gives none."""
    row, taken = give(claimed(ROW), NOW + 1, attempt=1, score=None)
    assert taken
    assert (row.score, row.error, row.at, row.due_at, row.lease_until) == (None, None, NOW + 1, None, None)


def test_judge_that_was_replaced_is_not_heard() -> None:
    """A judge that was stopped and resumes after another attempt has begun changes nothing."""
    row = claimed(claimed(ROW), NOW + 40)
    assert give(row, NOW + 41, attempt=1, score=Score(1.0)) == (row, False)
    assert miss(row, NOW + 41, attempt=1, why="no") == (row, False)
    assert give(row, NOW + 41, attempt=2, score=Score(1.0))[1]


def test_judge_that_failed_is_asked_again_after_a_pause_and_at_last_given_up() -> None:
    """The pauses grow, and its last error is stored instead of a score."""
    row = ROW
    for attempt in range(1, ATTEMPTS):
        row, taken = miss(claimed(row), NOW, attempt=attempt, why="no")
        assert taken
        assert (row.at, row.lease_until, row.due_at) == (None, None, NOW + PAUSE_S * attempt)
    row, taken = miss(claimed(row), NOW, attempt=ATTEMPTS, why="no" * MOST_CHARS)
    assert taken
    assert (row.score, row.at, row.due_at) == (None, NOW, None)
    assert len(row.error or "") == MOST_CHARS


@pytest.mark.parametrize(
    ("wished_s", "pause_s"), [(0.0, PAUSE_S), (1.0, PAUSE_S), (30.0, 30.0), (1e9, LONGEST_PAUSE_S)]
)
def test_judge_is_left_alone_as_long_as_its_models_provider_asks(wished_s: float, pause_s: float) -> None:
    """The pause is the longer one of the provider's and our own, up to a limit."""
    row, _ = miss(claimed(ROW), NOW, attempt=1, why="busy", wished_s=wished_s)
    assert row.due_at == NOW + pause_s


def test_pause_is_left_only_where_a_judge_failed() -> None:
    """There is no pause before the first attempt, during one, or after the score."""
    failed, _ = miss(claimed(ROW), NOW, attempt=1, why="no")
    assert pause_left(failed, NOW + 0.5) == (failed, PAUSE_S - 0.5)
    assert pause_left(failed, NOW + 99) == (failed, 0.0)
    given, _ = give(claimed(ROW), NOW, attempt=1, score=Score(1.0))
    for row in (ROW, claimed(ROW), claimed(failed), given):
        assert pause_left(row, NOW) == (row, 0.0)


def test_score_whose_judges_all_died_is_given_up() -> None:
    """Otherwise it would be looked at for ever."""
    row = ROW
    for number in range(ATTEMPTS):
        row = claimed(row, NOW + 100 * number)
    row, attempt = begin_judging(row, NOW + 1_000, judge_s=30.0)
    assert (attempt, row.at, row.due_at) == (None, NOW + 1_000, None)
    assert row.error == "none of 3 attempts came to an end"


def test_score_that_nobody_gives_is_given_up_a_day_after_the_turn() -> None:
    """Until then a worker with the judge may come; an attempt that may be alive is waited for."""
    late = NOW + LAPSES_S
    assert lapse(ROW, late - 1, ended_at=NOW) == (ROW, False)
    row, lapsed = lapse(ROW, late, ended_at=NOW)
    assert lapsed
    assert (row.score, row.error, row.at, row.due_at) == (None, "nobody was there to give it", late, None)
    assert lapse(row, late + 1, ended_at=NOW) == (row, False)
    judging = claimed(ROW, late)
    assert lapse(judging, late + 35.0, ended_at=NOW) == (judging, False)
    assert lapse(judging, late + 35.1, ended_at=NOW)[1]
