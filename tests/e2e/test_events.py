"""The events of a turn; the rules in ``soundness.py`` are also checked for every turn of the suite."""

from __future__ import annotations

import json
import uuid
from itertools import groupby

from tests.e2e.outsider import Json, Outsider, call


def test_log_tells_a_turn_in_order(outsider: Outsider) -> None:
    """Each step starts, has its model's reply and its waves, and completes; the terminal event is the last."""
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


def streamed(outsider: Outsider, turn_id: str, word: str) -> list[Json]:
    """All events of a turn's stream; durable events have their ``seq`` as id, hints have neither.

    The word is given once the stream tells something.
    """
    told: list[Json] = []
    with outsider.http.stream(
        "GET", f"/v1/turns/{turn_id}/events", headers={"Accept": "text/event-stream"}, timeout=60
    ) as response:
        for is_blank, lines in groupby(response.iter_lines(), lambda line: not line):
            fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":")) if not is_blank else {}
            if "data" in fields:
                event = json.loads(fields["data"])
                assert str(event.get("seq", "")) == fields.get("id", "")
                told.append(event)
                outsider.give(word)
    return told


def test_stream_hints_at_tools_that_start(outsider: Outsider) -> None:
    """The stream says that a tool starts before it gives its result; such hints are not among the durable events."""
    word = uuid.uuid4().hex
    opening = [call("await_word", word=word)]  # until the stream is open: a hint is told once
    turn_id = outsider.post(opening, [call("look", n=1), call("put", n=2)], "done")
    told = streamed(outsider, turn_id, word)
    outsider.end(turn_id)
    hints = [event["data"] for event in told if "seq" not in event and event["type"] == "tool.started"]
    assert [(hint["call_id"], hint["tool"], hint["attempt"]) for hint in hints if hint["call_id"] != "0.0"] == [
        ("1.0", "look", 1),
        ("1.1", "put", 1),
    ]
    places = [(event["type"], event["data"].get("call_id")) for event in told]
    for call_id in ("1.0", "1.1"):
        assert places.index(("tool.started", call_id)) < places.index(("tool.completed", call_id))
    assert [event for event in told if "seq" in event] == outsider.events(turn_id)


def test_log_tells_waves_that_were_denied(outsider: Outsider) -> None:
    """If all calls of a wave were denied, the wave is still started and completed."""
    turn = outsider.run([call("nonsense"), call("look")], "done")
    kinds = [event["type"] for event in outsider.events(turn["id"])]
    assert kinds.count("wave.started") == kinds.count("wave.completed") == 2
    assert kinds.count("tool.completed") == 2


def test_log_shows_the_end_no_earlier_than_the_turn(outsider: Outsider) -> None:
    """Once GET shows the final status, the terminal event can be read; the times of events never fall."""
    turn = outsider.run("done")
    events = outsider.events(turn["id"])
    assert [event["type"] for event in events][-1] == "turn.completed"
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
