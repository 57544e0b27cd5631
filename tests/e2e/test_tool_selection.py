"""Tool selection on a running stack: a session's tools stay, and an unlisted one that is asked for runs."""

from __future__ import annotations

from tests.e2e.outsider import Json, Outsider, Step, call


def steps_of(outsider: Outsider, turn: Json) -> list[tuple[str, bool]]:
    """Of each model call the hash of what stood before the history, and whether it broke the cache."""
    told = [event["data"] for event in outsider.events(turn["id"]) if event["type"] == "model.completed"]
    return [(data["prefix_hash"], data.get("cache_break", False)) for data in told]


def test_session_keeps_its_tools(outsider: Outsider) -> None:
    """Other words choose nothing else; what is not offered runs when it is asked for, and is offered from then on."""

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
