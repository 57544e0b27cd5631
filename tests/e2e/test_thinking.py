"""Reflection and compaction on a running fleet (docs/reference/thinking.md and compaction.md)."""

from __future__ import annotations

from typing import Any

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, Step, aside, call, long
from tests.e2e.workers import await_back, kill

LOOK = call("look", n=1)
FAILS: list[Step] = [[call("fail", how="tool_error"), LOOK], [LOOK]]


def told(outsider: Outsider, turn: Json, *types: str) -> list[tuple[str, Json]]:
    """The turn's events of these types."""
    events = outsider.events(turn["id"])
    return [(event["type"], event["data"]) for event in events if event["type"] in types]


def test_turn_reflects_on_a_failure(outsider: Outsider) -> None:
    """The turn reflects once, before the step that reads the reflection; its messages and calls are as without it."""
    thought = aside("reflection", 1, "It was the wrong door.", input_tokens=5, output_tokens=2)
    turn = outsider.run(*FAILS, "done", thought, agent="thoughtful")
    assert (turn["status"], turn["output_text"]) == ("completed", "done")
    events = told(outsider, turn, "reflection.completed", "model.completed")
    assert [kind for kind, _ in events] == ["model.completed", "reflection.completed", *["model.completed"] * 2]
    told_of = events[1][1]
    assert (told_of["step"], told_of["text"], told_of["is_stub"]) == (1, "It was the wrong door.", False)
    assert (turn["usage"]["input_tokens"], turn["usage"]["output_tokens"], turn["usage"]["steps"]) == (5, 2, 3)
    assert not [data for _, data in events if data.get("cache_break")]


def test_reflection_that_a_script_lacks_is_a_stub(outsider: Outsider) -> None:
    """If there is no reflection in the script, a stub takes its place and the turn continues."""
    turn = outsider.run(*FAILS, "done", agent="thoughtful")
    ((_, data),) = told(outsider, turn, "reflection.completed")
    assert (turn["output_text"], data["is_stub"]) == ("done", True)
    assert data["text"].startswith("[model error: ")


def test_session_is_summed_up(outsider: Outsider) -> None:
    """Summaries are made within a turn or before the next one, each is reported, and no message is rewritten."""
    summary = aside("compaction", 2, "They looked.", output_tokens=9)
    first = outsider.run(long(850), long(1_000), long(1_200), "one", summary, agent="thoughtful")
    session_id = first["session_id"]
    types = ("budget.warning", "compaction.completed", "model.completed")
    assert [kind for kind, _ in told(outsider, first, *types)] == [
        *("model.completed", "budget.warning", "model.completed", "compaction.completed"),
        *("model.completed", "budget.warning", "compaction.completed", "model.completed"),
    ]
    done, failed = (data for _, data in told(outsider, first, "compaction.completed"))
    assert (done["step"], done["text"], done["kept_messages"]) == (2, "They looked.", 3)
    assert done["tokens_before"] > 1_000
    assert (failed["step"], failed["is_stub"]) == (3, True)
    assert len(first["messages"]) == 8
    breaks = [data.get("cache_break", False) for _, data in told(outsider, first, "model.completed")]
    assert breaks == [False, False, True, False]
    ends: Json = {"content": [{"type": "text", "text": "two"}], "usage": {"input_tokens": 1_000}}
    outsider.run(ends, agent="thoughtful", session_id=session_id)
    third = outsider.run("three", aside("compaction", 0, "All is well."), agent="thoughtful", session_id=session_id)
    ((_, again),) = told(outsider, third, "compaction.completed")
    assert (again["text"], again["kept_messages"]) == ("All is well.", 1)


@pytest.mark.one_database("postgres")
def test_coordinator_killed_while_it_reflects_costs_one_more_call(outsider: Outsider) -> None:
    """Another coordinator asks again; only one reflection is reported and charged."""
    thought = {**aside("reflection", 1, "Again.", output_tokens=7), "latency_s": 4}
    turn_id = outsider.post(*FAILS, "done", thought, agent="thoughtful")
    wait_until(lambda: ("step.started", 1) in steps(outsider, turn_id), "the reflection to be asked for")
    await_back(outsider, "coordinator", kill(outsider, "coordinator"))
    turn = outsider.end(turn_id)
    assert [data["text"] for _, data in told(outsider, turn, "reflection.completed")] == ["Again."]
    assert (turn["output_text"], turn["usage"]["output_tokens"]) == ("done", 7)


def steps(outsider: Outsider, turn_id: str) -> list[tuple[str, Any]]:
    """The turn's events so far, each with its step."""
    return [(event["type"], event["data"].get("step")) for event in outsider.events(turn_id)]
