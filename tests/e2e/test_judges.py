"""Judges on a running stack score turns that have ended, each once, whatever dies."""

from __future__ import annotations

import subprocess

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.judges import judged_file
from tests.e2e.outsider import Json, Outsider, Posted, add_lines, call
from tests.e2e.workers import await_back
from tests.stacks import HARNESS, ROOT

LOOKS = [[call("look", n=1), call("find", n=2)]]
VERDICT = {
    "kind": "judge",
    "step": 0,
    "content": [{"type": "text", "text": '{"score": 0.9, "reason": "to the point"}'}],
}


def scores(outsider: Outsider, turn_id: str, timeout_s: float = 60.0) -> dict[str, Json]:
    """The scores of a turn, once all its judges have given theirs."""

    def spoken() -> list[Json] | None:
        answer = outsider.http.get(f"/v1/turns/{turn_id}/scores")
        assert answer.status_code == 200, answer.text
        found = answer.json()["data"]
        return found if found and all(score["at"] for score in found) else None

    return {score["judge"]: score for score in wait_until(spoken, "the judges to speak", timeout_s, interval_s=0.1)}


@pytest.fixture(scope="module")
def turns(outsider: Outsider) -> Posted:
    """A turn with judges; the judge that is a model finds its reply by the name of the turn's script."""
    judged = outsider.body(*LOOKS, "done", agent="judged")
    add_lines(outsider.directory, [{"script": f"{judged['metadata']['script']}/relevance", **VERDICT}])
    return Posted(outsider, {"judged": judged})


def test_judges_score_a_turn_that_is_over(turns: Posted, outsider: Outsider) -> None:
    """A function and a model each score the turn once, and the turn stays as it ended."""
    turn = turns["judged"]
    found = scores(outsider, turn["id"])
    assert {name: (score["score"], score["reason"], score["error"]) for name, score in found.items()} == {
        "calls": (1.0, "2 calls", None),
        "relevance": (0.9, "to the point", None),
    }
    assert judged_file(outsider.directory, turn["id"]).read_text() == "calls\n"
    assert outsider.turn(turn["id"]) == turn
    assert outsider.events(turn["id"])[-1]["type"] == "turn.completed"


def test_scores_are_part_of_the_turn_if_asked_for(turns: Posted, outsider: Outsider) -> None:
    """``include=scores`` adds the scores, with or without the messages; ``turns show`` prints them."""
    turn_id = turns["judged"]["id"]
    listed = list(scores(outsider, turn_id).values())
    for include, keys in (("scores", {"scores"}), ("messages,scores", {"messages", "scores"})):
        answer = outsider.http.get(f"/v1/turns/{turn_id}", params={"include": include}).json()
        assert keys <= set(answer)
        assert ("messages" in answer) is ("messages" in keys)
        assert answer["scores"] == listed
    assert outsider.http.get(f"/v1/turns/{turn_id}", params={"include": "marks"}).status_code == 422
    assert outsider.http.get("/v1/turns/nobody/scores").status_code == 404
    shown = subprocess.run(
        [*HARNESS, "turns", "show", turn_id, "--url", outsider.stack.gateway_url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "relevance  0.90  to the point" in shown.stdout
    assert "decision  web_augmented" in shown.stdout


def test_turn_tells_how_it_came_by_its_answer(turns: Posted, outsider: Outsider) -> None:
    """The turn and its last event have a decision, with judges or without; a turn without judges has no scores."""
    turn = turns["judged"]
    assert turn["decision"] == "web_augmented"
    assert outsider.events(turn["id"])[-1]["data"]["decision"] == "web_augmented"
    plain = outsider.run("done")
    assert plain["decision"] == "direct_answer"
    assert outsider.http.get(f"/v1/turns/{plain['id']}/scores").json() == {"data": []}


@pytest.mark.one_database("postgres")
def test_judge_that_kills_its_worker_scores_once(turns: Posted, outsider: Outsider) -> None:
    """If a judge kills its coordinator, a second attempt gives the one score."""
    scores(outsider, turns["judged"]["id"])  # its judges may be at it in the same process
    turn = outsider.run("done", agent="mortally_judged")
    found = scores(outsider, turn["id"], 90.0)
    assert (found["mortal"]["score"], found["mortal"]["error"]) == (0.25, None)
    assert judged_file(outsider.directory, turn["id"]).read_text() == "mortal\nmortal\n"
    assert outsider.turn(turn["id"]) == turn
    await_back(outsider, "coordinator", 0)
