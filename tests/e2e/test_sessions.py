"""Sessions on a running fleet: order, ``multitask``, artifacts (docs/reference/sessions.md and artifacts.md)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.outsider import Outsider, call


@pytest.fixture
def session_id(outsider: Outsider, request: pytest.FixtureRequest) -> str:
    """A session that no other test has."""
    return f"{request.function.__name__}-{outsider.stack.home.parent.name}"


def test_turns_posted_at_once_run_one_at_a_time(outsider: Outsider, session_id: str) -> None:
    """Each turn starts after the one before has ended, in the order of their creation; waiting fails none."""
    body = outsider.body([call("look", n=1, s=0.2)], "done", session_id=session_id, budget={"timeout_s": 60})
    with ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(outsider.http.post, "/v1/turns", json=body) for _ in range(4)]
        answers = [each.result() for each in pending]
    turns = sorted((outsider.end(answer.json()["id"]) for answer in answers), key=lambda turn: turn["created_at"])
    assert {turn["status"] for turn in turns} == {"completed"}
    for before, after in pairwise(turns):
        assert before["finished_at"] <= after["started_at"]
    session = outsider.http.get(f"/v1/sessions/{session_id}").json()
    assert (session["turns"], session["last_turn_id"], session["last_status"]) == (4, turns[-1]["id"], "completed")


def test_busy_session_rejects_queues_or_interrupts(outsider: Outsider, session_id: str) -> None:
    """While a turn runs, another post is refused with 409, waits, or takes its place."""
    running = outsider.post([call("hold", who="a", s=30)], "never said", session_id=session_id)
    outsider.await_entry(running, "0.0")
    queued = outsider.post("never said either", session_id=session_id, multitask="enqueue")
    refused = outsider.http.post("/v1/turns", json=outsider.body("x", session_id=session_id, multitask="reject"))
    assert (refused.status_code, refused.json()["code"]) == (409, "session_busy")
    last = outsider.post("done", session_id=session_id, multitask="interrupt")
    turns = [outsider.end(turn_id) for turn_id in (running, queued, last)]
    assert [turn["status"] for turn in turns] == ["cancelled", "cancelled", "completed"]
    assert turns[1]["calls"] == []
    assert turns[0]["finished_at"] <= turns[2]["started_at"]


def test_artifact_is_read_back_by_whoever_may(outsider: Outsider, session_id: str) -> None:
    """An artifact is read in parts over HTTP, and by models of its own session in any process; others are refused."""
    made = outsider.run([call("blob", chars=12_001)], "made", session_id=session_id)
    artifact_id = made["calls"][0]["content"].partition(": ")[0]
    part = outsider.http.get(f"/v1/artifacts/{artifact_id}", headers={"Range": "bytes=12000-"})
    assert (part.status_code, part.text, part.headers["content-range"]) == (206, "x", "bytes 12000-12000/12001")
    asks = [call("read_artifact", id=artifact_id, offset=11_999)]
    read = only(outsider.run(asks, "read", session_id=session_id))
    assert read["content"] == "[characters 11999 to 12001 of 12001]\nxx"
    other = only(outsider.run([call("blob", chars=12_001)], asks, "no", session_id=f"{session_id}-2"), step=1)
    assert (other["outcome"], other["is_error"]) == ("ToolFailure", True)
    assert other["content"].startswith(f"this session has no artifact {artifact_id}")


def only(turn: dict[str, Any], step: int = 0) -> dict[str, Any]:
    """The one call of a step."""
    (found,) = (each for each in turn["calls"] if each["step"] == step)
    return found
