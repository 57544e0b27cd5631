"""The log of a turn. The rules for every log are held against every turn of the suite."""

from __future__ import annotations

from tests.e2e.outsider import Outsider, call


def test_log_tells_a_turn_in_order(outsider: Outsider) -> None:
    """Each step is started, spoken, worked wave by wave and completed; the terminal event is the last."""
    turn = outsider.run([call("look", n=1), call("look", n=2), call("put", n=3)], "done")
    log = [(event["type"], event["data"]) for event in outsider.events(turn["id"])]
    assert [kind for kind, _ in log] == [
        "turn.queued",
        "turn.started",
        "step.started",
        "model.completed",
        "wave.started",
        "tool.completed",
        "tool.completed",
        "wave.completed",
        "wave.started",
        "tool.completed",
        "wave.completed",
        "step.completed",
        "step.started",
        "model.completed",
        "step.completed",
        "turn.completed",
    ]
    assert log[3][1]["stop_reason"] == "tool_use"
    assert log[4][1] == {"step": 0, "wave": 0, "calls": ["0.0", "0.1"]}
    assert log[10][1] == {"step": 0, "wave": 1, "calls": ["0.2"]}
    assert log[13][1]["text"] == "done"
    assert log[-1][1]["output_text"] == "done"


def test_log_tells_waves_that_were_denied(outsider: Outsider) -> None:
    """A wave all of whose calls were denied is started and completed like any other."""
    turn = outsider.run([call("nonsense"), call("look")], "done")
    kinds = [event["type"] for event in outsider.events(turn["id"])]
    assert kinds.count("wave.started") == kinds.count("wave.completed") == 2
    assert kinds.count("tool.completed") == 2


def test_log_shows_the_end_no_earlier_than_the_turn(outsider: Outsider) -> None:
    """The terminal event is readable once GET shows the status, and times never fall."""
    turn = outsider.run("done")
    events = outsider.events(turn["id"])
    assert [event["type"] for event in events][-1] == "turn.completed"
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
