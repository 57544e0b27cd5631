"""Agents that ask agents, on a running stack."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from time import monotonic

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import team_file
from tests.e2e.outsider import FINAL, Json, Outsider, Step, add_lines, call, script_line
from tests.e2e.times import finished, started
from tests.e2e.workers import await_back, kill

HELP = call("helper", input="help")
PROMPT_S = 3.0
"""How soon a family is stopped, on a machine that may do other things at the same time."""


def post(outsider: Outsider, *steps: Step, helper: Sequence[Step] = ("helped",), expert: Sequence[Step] = ()) -> str:
    """Post a turn of the lead, with what those say whom it asks; returns its id."""
    done = {**script_line("done"), "usage": {"output_tokens": 1}}
    says = {"lead": (*steps, done), "helper": helper, "expert": expert}
    script = hashlib.sha256(json.dumps(says).encode()).hexdigest()[:16]
    for agent, said in says.items():
        lines = ({"script": script, "step": number, **script_line(step)} for number, step in enumerate(said))
        add_lines(outsider.directory, lines, None if agent == "lead" else team_file(outsider.directory, agent))
    body = {"agent": "lead", "input": "go", "metadata": {"script": script}}
    answer = outsider.http.post("/v1/turns", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def children(outsider: Outsider, turn_id: str, **query: str) -> list[Json]:
    """The turns that its calls are, in the order of these."""
    found = outsider.http.get("/v1/turns", params={"parent_id": turn_id, **query}).json()["data"]
    return sorted(found, key=lambda child: [int(place) for place in child["parent"]["call_id"].split(".")])


def ended_family(outsider: Outsider, turn_id: str) -> list[Json]:
    """The turn and all that it had asked for, each over and sound."""
    turn = outsider.end(turn_id)
    return [turn, *(each for child in children(outsider, turn_id) for each in ended_family(outsider, child["id"]))]


def test_agents_work_side_by_side_and_answer(outsider: Outsider) -> None:
    """Two of a message at once, then what comes behind them; each is a turn, and its answer is the call's result."""
    spent = {"output_tokens": 5}
    helper = ([call("look", n=1, s=1.0)], {**script_line("helped"), "usage": spent})
    turn, *asked = ended_family(outsider, post(outsider, [HELP, HELP, call("put", n=3)], helper=helper))
    assert (turn["status"], turn["output_text"]) == ("completed", "done")
    assert [(each["content"], each["outcome"]) for each in turn["calls"][:2]] == [("helped", "ToolExecutionResult")] * 2
    assert [each["child_turn_id"] for each in turn["calls"]] == [*(child["id"] for child in asked), None]
    assert [child["parent"] for child in asked] == [{"turn_id": turn["id"], "call_id": c} for c in ("0.0", "0.1")]
    assert [child["input"] for child in asked] == ["help", "help"]
    assert max(map(started, asked)) < min(map(finished, asked))
    assert started(turn["calls"][2]) >= max(map(finished, asked))
    assert [each["wave"] for each in turn["calls"]] == [0, 0, 1]
    assert turn["usage"]["output_tokens"] == 1 + sum(child["usage"]["output_tokens"] for child in asked) == 11
    assert (turn["usage"]["steps"], turn["usage"]["tool_calls"], turn["parent"]) == (2, 3, None)
    told = [event for event in outsider.events(turn["id"]) if event["type"].startswith("subagent.")]
    assert [event["type"] for event in told] == ["subagent.started"] * 2 + ["subagent.finished"] * 2
    assert {event["data"]["turn_id"] for event in told} == {child["id"] for child in asked}
    assert [event["data"]["status"] for event in told[2:]] == ["completed"] * 2
    listed = outsider.http.get("/v1/sessions", params={"limit": 200}).json()["data"]
    assert not {child["session_id"] for child in asked} & {session["id"] for session in listed}


@pytest.mark.one_database("postgres")
def test_cancel_stops_a_family(outsider: Outsider) -> None:
    """A turn, whom it asked and whom that one asked: all end at once, and nothing of them happens after."""
    expert = ([call("hold_write", who="me", s=30.0)],)
    turn_id = post(outsider, [HELP], helper=([call("expert", input="?")], "helped"), expert=expert)

    def grandchild() -> Json | None:
        (child, *_) = children(outsider, turn_id) or [None]
        found = children(outsider, child["id"]) if child else []
        return found[0] if found and outsider.entries(found[0]["id"]) else None

    last = wait_until(grandchild, "the expert's tool to run", 20)
    began = monotonic()
    outsider.http.post(f"/v1/turns/{turn_id}/cancel")
    wait_until(lambda: outsider.turn(last["id"])["status"] in FINAL, "the expert to end", 20)
    assert monotonic() - began < PROMPT_S
    family = ended_family(outsider, turn_id)
    assert [each["status"] for each in family] == ["cancelled"] * 3
    assert [each["calls"][0]["content"].partition(":")[0] for each in family] == ["outcome_unknown"] * 3
    left = [line["event"] for line in outsider.journal(last["id"])]
    wait_until(lambda: "left" in [line["event"] for line in outsider.journal(last["id"])], "its tool to stop", 5)
    assert left[0] == "entered"


@pytest.mark.one_database("postgres")
def test_person_is_found_by_the_turn_that_waits(outsider: Outsider) -> None:
    """The call that needs a word is in the turn that was asked for; the one that asks goes on once it was given."""
    turn_id = post(outsider, [HELP], helper=([call("ask_put", n=1)], "helped"))
    wanted = {"status": "requires_action"}
    (waiting,) = wait_until(lambda: children(outsider, turn_id, **wanted), "the helper to ask a person", 20)
    assert outsider.turn(turn_id)["status"] == "running"
    (action,) = waiting["required_actions"]
    said = {"call_id": action["call_id"], "decision": "approve"}
    outsider.http.post(f"/v1/turns/{waiting['id']}/inputs", json=said)
    assert [each["output_text"] for each in ended_family(outsider, turn_id)] == ["done", "helped"]


@pytest.mark.acceptance
def test_killed_workers_lose_no_family(outsider: Outsider) -> None:
    """Whole workers killed in the midst of it, of tools and of turns: every turn ends, and is told as it ended."""
    helper: tuple[Step, ...] = ([call("look", n=1, s=0.3), call("expert", input="?")], [call("put", n=2)], "helped")
    expert: tuple[Step, ...] = ([call("look", n=3, s=0.5)], "known")
    ids = [post(outsider, [HELP, HELP, HELP], [HELP], helper=helper, expert=expert) for _ in range(5)]
    for role in ("coordinator", "tools", "coordinator"):
        wait_until(lambda: children(outsider, ids[0]), "the first to have asked", 20)
        await_back(outsider, role, kill(outsider, role))
    for turn_id in ids:
        turn, *others = ended_family(outsider, turn_id)
        by_id = {each["id"]: each for each in (turn, *others)}
        assert len(others) == 8
        assert {each["status"] for each in by_id.values()} == {"completed"}
        for each in turn["calls"]:
            assert each["content"] == by_id[each["child_turn_id"]]["output_text"] == "helped"
