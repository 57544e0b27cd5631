"""Agents that call other agents, on a running stack."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import team_file
from tests.e2e.outsider import FINAL, Json, Outsider, Step, add_lines, call, script_line
from tests.e2e.times import finished, started
from tests.e2e.workers import await_back, kill
from tests.stacks import run_harness

HELP = call("helper", input="help")
LONG_S = 30.0


def post(outsider: Outsider, *steps: Step, helper: Sequence[Step] = ("helped",), expert: Sequence[Step] = ()) -> str:
    """Post a turn of the agent ``lead``, with the replies of the agents that it asks; returns the turn's id."""
    body = {"agent": "lead", "input": "go", "metadata": written(outsider, *steps, helper=helper, expert=expert)}
    answer = outsider.http.post("/v1/turns", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def written(outsider: Outsider, *steps: Step, helper: Sequence[Step], expert: Sequence[Step] = ()) -> dict[str, str]:
    """Write the agents' replies to the script file; returns the metadata of a turn that uses them."""
    done = {**script_line("done"), "usage": {"output_tokens": 1}}
    says = {"lead": (*steps, done), "helper": helper, "expert": expert}
    script = hashlib.sha256(json.dumps(says).encode()).hexdigest()[:16]
    for agent, said in says.items():
        lines = ({"script": script, "step": number, **script_line(step)} for number, step in enumerate(said))
        add_lines(outsider.directory, lines, None if agent == "lead" else team_file(outsider.directory, agent))
    return {"script": script}


def children(outsider: Outsider, turn_id: str, **query: str) -> list[Json]:
    """The child turns of a turn, in the order of its calls."""
    found = outsider.http.get("/v1/turns", params={"parent_id": turn_id, **query}).json()["data"]
    return sorted(found, key=lambda child: [int(place) for place in child["parent"]["call_id"].split(".")])


def below(outsider: Outsider, turn_id: str) -> list[Json]:
    """The questions of turns below this one, as the turn shows them."""
    return outsider.turn(turn_id)["subagent_actions"]


def asked_below(outsider: Outsider, turn_id: str) -> list[Json]:
    """The turn's events about turns below it that waited for people."""
    return [event for event in outsider.events(turn_id) if event["type"] == "subagent.requires_action"]


def ended_family(outsider: Outsider, turn_id: str) -> list[Json]:
    """A turn and all turns below it, each ended and checked by the rules for every turn."""
    turn = outsider.end(turn_id)
    return [turn, *(each for child in children(outsider, turn_id) for each in ended_family(outsider, child["id"]))]


def test_agents_work_side_by_side_and_answer(outsider: Outsider) -> None:
    """Two agents asked in one message work together, before later calls; each is a turn, its answer the result."""
    spent, word = {"output_tokens": 5}, uuid.uuid4().hex
    helper = ([call("await_word", word=word)], {**script_line("helped"), "usage": spent})
    turn_id = post(outsider, [HELP, HELP, call("put", n=3)], helper=helper)

    def both_work() -> bool:
        return sum(bool(outsider.entries(child["id"])) for child in children(outsider, turn_id)) == 2

    wait_until(both_work, "both helpers' tools to run", 60)
    outsider.give(word)
    turn, *asked = ended_family(outsider, turn_id)
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
    """Cancelling a turn ends its child and its grandchild at once, and nothing of them happens later."""
    expert = ([call("hold_write", who="me", s=LONG_S)],)
    turn_id = post(outsider, [HELP], helper=([call("expert", input="?")], "helped"), expert=expert)

    def grandchild() -> Json | None:
        (child, *_) = children(outsider, turn_id) or [None]
        found = children(outsider, child["id"]) if child else []
        return found[0] if found and outsider.entries(found[0]["id"]) else None

    last = wait_until(grandchild, "the expert's tool to run", 60)
    outsider.http.post(f"/v1/turns/{turn_id}/cancel")
    wait_until(lambda: outsider.turn(last["id"])["status"] in FINAL, "the expert to end", 60)
    family = ended_family(outsider, turn_id)
    assert [each["status"] for each in family] == ["cancelled"] * 3
    assert [each["calls"][0]["content"].partition(":")[0] for each in family] == ["outcome_unknown"] * 3
    wait_until(lambda: len(outsider.journal(last["id"])) == 2, "its tool to stop")
    entered, left = outsider.journal(last["id"])
    assert (entered["event"], left["event"]) == ("entered", "left")
    assert left["at"] - entered["at"] < LONG_S, "it was stopped before it would have ended by itself"


@pytest.mark.one_database("postgres")
def test_person_is_asked_by_whoever_asked_first(outsider: Outsider) -> None:
    """While a child or grandchild waits, each turn above reports it once, and the first turn shows where to answer."""
    helper: tuple[Step, ...] = ([call("ask_put", n=1)], [call("expert", input="?")], "helped")
    turn_id = post(outsider, [HELP], helper=helper, expert=([call("ask_put", n=2)], "known"))
    waited: list[Json] = []
    for _ in range(2):
        (action,) = wait_until(lambda: below(outsider, turn_id), "somebody below to ask", 60)
        waiting = outsider.turn(action["turn_id"])
        assert (action["tool"], waiting["status"]) == ("ask_put", "requires_action")
        assert waiting["required_actions"] == [{name: action[name] for name in action if name != "turn_id"}]
        assert outsider.turn(turn_id)["status"] == "running"
        said = {"call_id": action["call_id"], "decision": "approve"}
        assert outsider.http.post(f"/v1/turns/{waiting['id']}/inputs", json=said).status_code == 202
        assert action not in below(outsider, turn_id)
        waited.append(waiting)
    family = ended_family(outsider, turn_id)
    assert [each["output_text"] for each in family] == ["done", "helped", "known"]
    _, child, grandchild = (each["id"] for each in family)
    assert [each["id"] for each in waited] == [child, grandchild]
    told = [(each["data"]["call_id"], each["data"]["turn_id"]) for each in asked_below(outsider, turn_id)]
    assert told == [("0.0", child), ("0.0", grandchild)]
    assert [each["data"]["turn_id"] for each in asked_below(outsider, child)] == [grandchild]


@pytest.mark.one_database("postgres")
def test_command_line_tells_of_those_below(outsider: Outsider) -> None:
    """The command that runs the first turn says what to approve, and that turn's id is enough to approve it."""
    ((name, script),) = written(outsider, [HELP], helper=([call("ask_put", n=1)], "helped")).items()
    url = ("--url", outsider.stack.gateway_url)
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(run_harness, "run", "go", "--agent", "lead", "--metadata", f"{name}={script}", *url)

        def waiting() -> Json | None:
            parked = outsider.http.get("/v1/turns", params={"status": "requires_action", f"metadata.{name}": script})
            (turn, *_) = parked.json()["data"] or [None]
            return turn if turn and below(outsider, turn["parent"]["turn_id"]) else None

        child = wait_until(waiting, "the helper to ask a person", 60)
        shown = run_harness("turns", "show", child["parent"]["turn_id"], *url)
        assert "waits for approval" in shown.stdout
        approved = run_harness("turns", "approve", child["parent"]["turn_id"], *url)
        assert approved.stdout == f"{child['parent']['turn_id']}  approved\n", approved.stderr
    assert (ran.result().returncode, ran.result().stdout) == (0, "done\n"), ran.result().stderr
    assert f'waiting for approval: 0.0 ask_put {{"n": 1}} of turn {child["id"]}' in ran.result().stderr
    assert f"harness turns approve {child['id']} {' '.join(url)}, or deny" in ran.result().stderr


@pytest.mark.one_database("postgres")
@pytest.mark.parametrize("stream", [False, True])
def test_openai_client_is_told_where_to_answer(outsider: Outsider, *, stream: bool) -> None:
    """A request does not wait for a person whom a child turn needs, just as it does not for its own turn's."""
    metadata = written(outsider, [HELP], helper=([call("ask_put", n=1)], "helped"))
    body = {"model": "lead", "messages": [{"role": "user", "content": "go"}], "metadata": metadata, "stream": stream}
    answer = outsider.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == (200 if stream else 409), answer.text
    (waiting, *_) = outsider.http.get("/v1/turns", params={"status": "requires_action"}).json()["data"]
    assert "approval_required" in answer.text
    assert f"POST /v1/turns/{waiting['id']}/inputs; it asks to run ask_put" in answer.text
    outsider.http.post(f"/v1/turns/{waiting['id']}/inputs", json={"message": "no"})
    assert outsider.end(waiting["parent"]["turn_id"])["output_text"] == "done"


@pytest.mark.acceptance
def test_killed_workers_lose_no_family(outsider: Outsider) -> None:
    """Tool workers and coordinators are killed while families run: every turn ends, and its parent has its result."""
    helper: tuple[Step, ...] = ([call("look", n=1, s=0.3), call("expert", input="?")], [call("put", n=2)], "helped")
    expert: tuple[Step, ...] = ([call("look", n=3, s=0.5)], "known")
    ids = [post(outsider, [HELP, HELP, HELP], [HELP], helper=helper, expert=expert) for _ in range(5)]
    for role in ("coordinator", "tools", "coordinator"):
        wait_until(lambda: children(outsider, ids[0]), "the first to have asked", 60)
        await_back(outsider, role, kill(outsider, role))
    for turn_id in ids:
        turn, *others = ended_family(outsider, turn_id)
        by_id = {each["id"]: each for each in (turn, *others)}
        assert len(others) == 8
        assert {each["status"] for each in by_id.values()} == {"completed"}
        for each in turn["calls"]:
            assert each["content"] == by_id[each["child_turn_id"]]["output_text"] == "helped"
