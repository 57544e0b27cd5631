"""Posting turns, repeating requests, and posting many turns at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.outsider import Json, Outsider, call
from tests.e2e.times import contents


def test_same_key_is_one_turn_while_it_runs_and_after(outsider: Outsider) -> None:
    """A repeat is answered with the first request's turn as it is now; another body under the key is refused."""
    body = outsider.body([call("put", n=1, s=1.0)], "done")
    headers = {"Idempotency-Key": "one-turn-only"}
    first = outsider.http.post("/v1/turns", json=body, headers=headers)
    assert first.status_code == 202
    turn_id = first.json()["id"]
    outsider.await_entry(turn_id, "0.0")
    during = outsider.http.post("/v1/turns", json=body, headers=headers)
    assert (during.status_code, during.json()["id"], during.json()["status"]) == (202, turn_id, "running")
    outsider.end(turn_id)
    after = outsider.http.post("/v1/turns", json=body, headers=headers)
    assert (after.status_code, after.json()["id"], after.json()["status"]) == (202, turn_id, "completed")
    assert after.headers["Location"] == first.headers["Location"] == f"/v1/turns/{turn_id}"
    other = outsider.http.post("/v1/turns", json={**body, "input": "something else"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert len(outsider.entries(turn_id)) == 1


def test_same_key_at_the_same_moment_is_one_turn(outsider: Outsider) -> None:
    """Requests that use one key at the same moment make one turn."""
    body = outsider.body([call("put", n=1)], "done")

    def post(_: int) -> str:
        answer = outsider.http.post("/v1/turns", json=body, headers={"Idempotency-Key": "a-race"})
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    with ThreadPoolExecutor(6) as pool:
        (turn_id,) = set(pool.map(post, range(6)))
    assert outsider.end(turn_id)["status"] == "completed"


@pytest.mark.one_database("postgres")
def test_preferred_wait_answers_with_the_finished_turn(outsider: Outsider) -> None:
    """``Prefer: wait`` answers 200 with the ended turn, or 202 if it has not ended in time."""
    body = outsider.body([call("look", n=1)], "done")
    waited = outsider.http.post("/v1/turns", json=body, headers={"Prefer": "wait=20"})
    assert (waited.status_code, waited.json()["output_text"]) == (200, "done")
    slow = outsider.body([call("look", n=1, s=6)], "done")
    gave_up = outsider.http.post("/v1/turns", json=slow, headers={"Prefer": "wait=1"})
    assert gave_up.status_code == 202
    assert outsider.end(gave_up.json()["id"])["status"] == "completed"


def test_thirty_turns_at_once_all_end_and_never_meet(outsider: Outsider) -> None:
    """Thirty turns, interactive and batch, all complete, each with its own results, text and tokens."""

    def body(n: int) -> Json:
        answer = {"content": [{"type": "text", "text": f"done {n}"}], "usage": {"input_tokens": n, "output_tokens": 1}}
        steps = [call("look", n=1_000 + n), call("look", n=2_000 + n)], [call("put", n=3_000 + n)], answer
        return {**outsider.body(*steps, priority="interactive" if n % 2 else "batch"), "input": f"go {n}"}

    bodies = [body(n) for n in range(30)]

    def post(body: Json) -> str:
        return outsider.http.post("/v1/turns", json=body).json()["id"]

    with ThreadPoolExecutor(10) as pool:
        ids = list(pool.map(post, bodies))
    for n, turn_id in enumerate(ids):
        turn = outsider.end(turn_id)
        assert (turn["status"], turn["output_text"]) == ("completed", f"done {n}")
        assert contents(turn) == [f'{{"n":{1_000 + n}}}', f'{{"n":{2_000 + n}}}']
        assert contents(turn, 1) == [f"put {3_000 + n}"]
        assert turn["messages"][0]["content"] == f"go {n}"
        assert turn["usage"]["input_tokens"] == n
        assert len(outsider.entries(turn_id)) == 3


def test_catalogue_tells_agents_and_tools(outsider: Outsider) -> None:
    """Workers publish their agents and tools, which ``GET /v1/agents`` lists."""
    agents = {agent["name"]: agent for agent in outsider.http.get("/v1/agents").json()["data"]}
    assert {"worker", "orderly", "modest", "hooked"} <= set(agents)
    assert agents["orderly"]["parallel"] is False
    tools = {tool["name"]: tool for tool in agents["worker"]["tools"]}
    assert tools["look"]["effect"] == "READ_ONLY"
    assert tools["mystery"]["effect"] is None
    assert "ctx" not in tools["look"]["schema"]["properties"]
    assert "unlisted" not in tools
