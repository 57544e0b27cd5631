"""Posting turns, repeating requests, and posting many turns at once."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.outsider import Json, Outsider, call
from tests.e2e.times import contents


def test_same_key_is_one_turn_while_it_runs_and_after(outsider: Outsider) -> None:
    """A repeat is answered with the first request's turn as it is now; another body under the key is refused."""
    word = uuid.uuid4().hex
    body = outsider.body([call("await_word", word=word)], "done")
    headers = {"Idempotency-Key": word}
    first = outsider.http.post("/v1/turns", json=body, headers=headers)
    assert first.status_code == 202
    turn_id = first.json()["id"]
    outsider.await_entry(turn_id, "0.0")
    during = outsider.http.post("/v1/turns", json=body, headers=headers)
    assert (during.status_code, during.json()["id"], during.json()["status"]) == (202, turn_id, "running")
    outsider.give(word)
    outsider.end(turn_id)
    after = outsider.http.post("/v1/turns", json=body, headers=headers)
    assert (after.status_code, after.json()["id"], after.json()["status"]) == (202, turn_id, "completed")
    assert after.headers["Location"] == first.headers["Location"] == f"/v1/turns/{turn_id}"
    other = outsider.http.post("/v1/turns", json={**body, "input": "something else"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert len(outsider.entries(turn_id)) == 1


def test_thirty_turns_at_once_all_end_and_never_meet(outsider: Outsider) -> None:
    """Thirty turns, interactive and batch, all complete, each with its own results, text and tokens."""

    def body(n: int) -> Json:
        answer = {"content": [{"type": "text", "text": f"done {n}"}], "usage": {"input_tokens": n, "output_tokens": 1}}
        steps = [call("look", n=1_000 + n), call("look", n=2_000 + n)], [call("put", n=3_000 + n)], answer
        return {**outsider.body(*steps, priority="interactive" if n % 2 else "batch"), "input": f"go {n}"}

    bodies = [body(n) for n in range(30)]

    def post(body: Json) -> str:
        posted = outsider.http.post("/v1/turns", json=body)
        assert posted.status_code == 202, posted.text
        return posted.json()["id"]

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
