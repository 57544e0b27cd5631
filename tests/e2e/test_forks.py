"""Forks on a running fleet: a new turn continues from a step of another one (docs/how-to/fork-turns.md)."""

from __future__ import annotations

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.approval_kit import parked
from tests.e2e.outsider import Json, Outsider, Step, add_script, aside, call, long
from tests.e2e.workers import await_back, kill

ONE = pytest.mark.one_database("sqlite")
LOOK = call("look", n=1)
WRONG: list[Step] = [[LOOK, call("look", n=2), call("mystery_tool")], [call("put", n=7)], "wrong"]
"""A turn whose second step is a mistake."""


def fork(outsider: Outsider, turn: Json, from_step: int, *steps: Step, **options: object) -> Json:
    """Fork a turn and wait for its end; its model says ``steps``, or else what the origin's model says."""
    return outsider.end(forked(outsider, turn, from_step, *steps, **options)["id"])


def forked(outsider: Outsider, turn: Json, from_step: int, *steps: Step, **options: object) -> Json:
    """Fork a turn; returns the new turn."""
    script = {"metadata": {"script": add_script(outsider.directory, steps)}} if steps else {}
    body = {"from_step": from_step, **script, **options}
    answer = outsider.http.post(f"/v1/turns/{turn['id']}/fork", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/turns/{answer.json()['id']}"
    return answer.json()


def told(outsider: Outsider, turn: Json, kind: str) -> list[Json]:
    """The data of the turn's events of that type."""
    return [event["data"] for event in outsider.events(turn["id"]) if event["type"] == kind]


def test_fork_goes_on_from_a_step_and_runs_nothing_before_it_again(outsider: Outsider) -> None:
    """A fork has its origin's messages before that step, and from there on its own calls, events and costs."""
    origin = outsider.run(*WRONG)
    before = outsider.turn(origin["id"])
    other = fork(outsider, origin, 1, "-", [call("look", n=3)], "right", system_prompt_override="Better.")
    assert (other["status"], other["output_text"], other["usage"]["steps"]) == ("completed", "right", 2)
    assert other["forked_from"] == {"turn_id": origin["id"], "step": 1}
    assert other["session_id"] != origin["session_id"]
    assert other["messages"][:3] == origin["messages"][:3]
    assert [each["call_id"] for each in other["calls"]] == ["1.0"]
    assert [entry["call"] for entry in outsider.entries(other["id"])] == ["1.0"]
    assert told(outsider, other, "turn.queued")[0]["forked_from"] == other["forked_from"]
    assert [data["step"] for data in told(outsider, other, "step.started")] == [1, 2]
    assert outsider.turn(origin["id"]) == before


def test_fork_that_changes_nothing_asks_what_its_origin_asked(outsider: Outsider) -> None:
    """Its requests equal the origin's to the last byte, so the provider's cache serves them; so do a fork's fork's."""
    outsider_session = outsider.run("hello")["session_id"]
    origin = outsider.run(*WRONG, session_id=outsider_session)
    asked = [data["render_hash"] for data in told(outsider, origin, "model.completed")]
    again = fork(outsider, origin, 1)
    assert [data["render_hash"] for data in told(outsider, again, "model.completed")] == asked[1:]
    third = fork(outsider, again, 2)
    assert [data["render_hash"] for data in told(outsider, third, "model.completed")] == asked[2:]
    assert [turn["messages"] for turn in (again, third)] == [origin["messages"]] * 2


@ONE
def test_fork_from_the_start_may_say_other_words(outsider: Outsider) -> None:
    """A fork from step 0 runs the turn anew, and may have another input and agent."""
    origin = outsider.run(*WRONG)
    other = fork(outsider, origin, 0, "right", input="go slowly", agent="modest")
    assert (other["input"], other["agent"], other["output_text"]) == ("go slowly", "modest", "right")
    assert other["messages"][0] == {"role": "user", "content": "go slowly"}


@ONE
def test_what_ran_before_counts_for_the_forks_calls(outsider: Outsider) -> None:
    """Calls are denied as duplicate or blocked because of calls before the fork, just as in the origin."""
    asks = [call("fetch", n=1), call("fail", how="final")]
    other = fork(outsider, outsider.run(asks, "done"), 1, "-", asks, "done")
    assert [each["content"].split(":")[1] for each in other["calls"]] == [" duplicate", " blocked"]


@pytest.mark.acceptance
def test_call_in_doubt_is_asked_again_with_its_key(outsider: Outsider) -> None:
    """A fork that repeats a call in doubt uses its key, so that the tool can know whether it was done."""
    asks = [call("nap_write", s=3)]
    origin = outsider.run(asks, "done")
    assert origin["calls"][0]["content"].startswith("outcome_unknown")
    other = fork(outsider, origin, 1, "-", asks, "done")
    keys = [line["key"] for turn in (origin, other) for line in outsider.entries(turn["id"])]
    assert len(keys) == 2
    assert keys[0] == keys[1]


@ONE
def test_fork_from_before_a_summary_is_sent_the_whole(outsider: Outsider) -> None:
    """A fork from a step before a summary is sent the whole history; one from a later step is sent the summary."""
    summary = aside("compaction", 2, "They looked.")
    origin = outsider.run(long(850), long(1_000), long(10), "one", summary, agent="thoughtful")
    for from_step, is_compacted in ((1, False), (3, True)):
        other = fork(outsider, origin, from_step, "-", "short", "-", "one")
        (data,) = told(outsider, other, "turn.completed")
        assert data.get("context_was_compacted", False) is is_compacted


@ONE
def test_turn_that_used_its_steps_up_goes_on_with_more(outsider: Outsider) -> None:
    """A turn that ended with ``max_steps`` can be forked after its last step: no model has seen those results yet."""
    origin = outsider.run([LOOK], [LOOK], "done", budget={"max_steps": 1})
    assert origin["stop_reason"] == "max_steps"
    other = fork(outsider, origin, 1, budget={"max_steps": 2})
    assert (other["status"], [each["call_id"] for each in other["calls"]]) == ("completed", ["1.0"])
    over = outsider.http.post(f"/v1/turns/{other['id']}/fork", json={"from_step": 3})
    assert (over.status_code, over.json()["code"]) == (422, "invalid_request")
    assert "has 3 steps; from_step may be 0 to 2" in over.json()["errors"][0]["msg"]


@ONE
def test_turn_that_waits_for_a_person_is_forked_without_a_word_to_it(outsider: Outsider) -> None:
    """A turn that still waits can be forked from its completed steps, and keeps waiting."""
    waits = parked(outsider, [LOOK], [call("ask_put", n=1)], "put")
    other = fork(outsider, waits, 1, "-", "not put")
    assert (other["output_text"], other["calls"]) == ("not put", [])
    assert outsider.turn(waits["id"])["status"] == "requires_action"
    early = outsider.http.post(f"/v1/turns/{waits['id']}/fork", json={"from_step": 2})
    assert early.status_code == 422
    outsider.http.post(f"/v1/turns/{waits['id']}/cancel")
    cancelled = outsider.end(waits["id"])
    assert fork(outsider, cancelled, 2, "-", "-", "sorry")["output_text"] == "sorry"


def test_fork_reads_the_artifacts_of_its_origin(outsider: Outsider) -> None:
    """A fork can read the artifacts that its origin's messages name, and so can a fork of the fork."""
    made = outsider.run([call("blob", chars=12_001)], "made")
    artifact_id = made["calls"][0]["content"].partition(": ")[0]
    asks = [call("read_artifact", id=artifact_id, offset=11_999)]
    first = fork(outsider, made, 1, "-", asks, "read")
    second = fork(outsider, first, 2, "-", "-", asks, "read")
    for other in (first, second):
        assert other["calls"][0]["content"] == "[characters 11999 to 12001 of 12001]\nxx"


@pytest.mark.acceptance
def test_fork_ends_though_its_coordinator_is_killed(outsider: Outsider) -> None:
    """If the coordinator is killed before the fork's first reply, the next one takes the fork up again."""
    origin = outsider.run(*WRONG)
    slow: Json = {"content": [{"type": "text", "text": "right"}], "latency_s": 4}
    turn_id = forked(outsider, origin, 1, "-", slow)["id"]
    wait_until(lambda: outsider.turn(turn_id)["started_at"], "the fork to start")
    await_back(outsider, "coordinator", kill(outsider, "coordinator"))
    other = outsider.end(turn_id)
    assert (other["output_text"], other["messages"][:3]) == ("right", origin["messages"][:3])
