"""Tool selection on a running stack: a session keeps its tools, and another tool of the agent runs if asked for."""

from __future__ import annotations

from tests.e2e.outsider import Json, Outsider, Step, call


def steps_of(outsider: Outsider, turn: Json) -> list[tuple[str, bool]]:
    """For each model call, the hash of the prompt before the history, and whether it broke the cache."""
    told = [event["data"] for event in outsider.events(turn["id"]) if event["type"] == "model.completed"]
    return [(data["prefix_hash"], data.get("cache_break", False)) for data in told]


def test_session_keeps_its_tools(outsider: Outsider) -> None:
    """Other words select no other tools; a tool that was not offered runs when asked for, and is then offered."""

    def says(words: str, *steps: Step) -> Json:
        return outsider.run(*steps, agent="choosy", session_id="choosy", input=words)

    ((first, _),) = steps_of(outsider, says("Find something on the web", "ok"))
    assert steps_of(outsider, says("Save and reserve the order", "so")) == [(first, False)]
    turn = says("Look", [call("gpu_look", n=4)], "done")
    assert [(each["tool"], each["content"]) for each in turn["calls"]] == [("gpu_look", "gpu 4")]
    before, (appended, is_break) = steps_of(outsider, turn)
    assert before == (first, False)
    assert (appended != first, is_break) == (True, True)
    assert steps_of(outsider, says("Reserve", "fine")) == [(appended, False)]
