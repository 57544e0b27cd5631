"""Scores in SQL, on both databases: added with a turn's end, changed one at a time, found when they are due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness_worker.adapters.sql.scores import SqlScores
from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.ending import end_turn
from harness_worker.core.registration.judges import Score
from harness_worker.core.scoring.scores import ScoreRow, begin_judging, give
from harness_worker.wire import StopReason, TurnStatus
from tests.contract.store_world import World, in_threads

JUDGES = ("brief", "kind")


def ended(world: World, *judges: str) -> str:
    """End a new turn with these scores due, and return its id."""
    turn_id = world.queued()

    def end(snapshot: Snapshot) -> Decision[None]:
        over = end_turn(snapshot.turn, TurnStatus.COMPLETED, StopReason.END_TURN, now=snapshot.now)
        return Decision(result=None, turn=over, judges=judges)

    world.store.transact(turn_id, end)
    return turn_id


@pytest.fixture
def scores(world: World) -> SqlScores:
    """The scores in the world's database."""
    return SqlScores(world.engine)


def at_once(row: ScoreRow, now: float) -> tuple[ScoreRow, None]:
    """Make the score due now."""
    return replace(row, due_at=now - 1), None


def test_end_of_a_turn_adds_its_scores(world: World, scores: SqlScores) -> None:
    """The commit itself adds them, due a little later; a turn without judges has none."""
    turn_id = ended(world, *JUDGES)
    found = scores.of_turn(turn_id)
    assert [(row.judge, row.attempt, row.score, row.reason, row.at) for row in found] == [
        ("brief", 0, None, "", None),
        ("kind", 0, None, "", None),
    ]
    finished_at = world.turn(turn_id).finished_at or 0.0
    assert {row.due_at for row in found} == {finished_at + 10.0}
    assert scores.of_turn(ended(world)) == ()


def test_change_writes_what_the_rule_says(world: World, scores: SqlScores) -> None:
    """Only the requested row changes; a missing one is reported."""
    turn_id = ended(world, *JUDGES)
    assert scores.change(turn_id, "brief", lambda row, now: begin_judging(row, now, judge_s=5.0)) == 1
    assert scores.change(turn_id, "brief", lambda row, now: give(row, now, attempt=1, score=Score(0.5, "é"))) is True
    brief, kind = scores.of_turn(turn_id)
    assert (brief.score, brief.reason, brief.due_at) == (0.5, "é", None)
    assert brief.at == pytest.approx(world.now(), abs=30)
    assert kind.attempt == 0
    assert scores.change(turn_id, "nobody", lambda row, now: begin_judging(row, now, judge_s=5.0)) is None


def test_change_by_many_at_once_lets_one_judge(world: World, scores: SqlScores) -> None:
    """Even if its message is delivered many times, a turn is judged once."""
    turn_id = ended(world, "brief")
    claims = in_threads(
        8, lambda _: scores.change(turn_id, "brief", lambda row, now: begin_judging(row, now, judge_s=30.0)), threads=4
    )
    assert sorted(map(str, claims)) == ["1", *["None"] * 7]


def test_due_gives_what_is_overdue_and_pushes_it_on(world: World, scores: SqlScores) -> None:
    """The oldest come first, of the requested judges only, and not again at once; a score already given never does."""
    first, second = ended(world, *JUDGES), ended(world, "brief")
    assert scores.due(JUDGES, 9, 30.0) == []
    scores.change(second, "brief", lambda row, now: (replace(row, due_at=now - 2), None))
    for judge in JUDGES:
        scores.change(first, judge, at_once)
    assert scores.due(["brief"], 1, 30.0) == [(second, "brief")]
    assert scores.due(["brief"], 9, 30.0) == [(first, "brief")]
    assert scores.due(["brief"], 9, 30.0) == []
    scores.change(first, "kind", lambda row, now: begin_judging(row, now, judge_s=5.0))
    scores.change(first, "kind", lambda row, now: give(row, now, attempt=1, score=Score(1.0)))
    assert scores.due(JUDGES, 9, 30.0) == []


def test_due_never_gives_a_score_to_two_callers(world: World, scores: SqlScores) -> None:
    """Reconcilers that look at the same moment share the scores that are due."""
    turns = [ended(world, "brief") for _ in range(6)]
    for turn_id in turns:
        scores.change(turn_id, "brief", at_once)
    taken = [found for part in in_threads(4, lambda _: scores.due(["brief"], 3, 30.0), threads=4) for found in part]
    rest = scores.due(["brief"], 9, 30.0)
    assert sorted([*taken, *rest]) == sorted((turn_id, "brief") for turn_id in turns)
