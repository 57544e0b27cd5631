"""Batches on real workers."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from sqlalchemy import create_engine, func, select

from api_gateway.config import Settings
from harness_worker.schema import batches
from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, call
from tests.integration.gateway_kit import NOWHERE, serving, sync_url
from tests.stacks import role_pid

LONG_S = 60.0
COORDINATORS = 8


def batch_of(bodies: list[Json]) -> Json:
    """The body of a batch of these turns, named ``t0``, ``t1`` and so on."""
    return {"requests": [{"custom_id": f"t{number}", "params": body} for number, body in enumerate(bodies)]}


def post(outsider: Outsider, bodies: list[Json]) -> Json:
    """Post a batch."""
    answer = outsider.http.post("/v1/batches", json=batch_of(bodies))
    assert answer.status_code == 202, answer.text
    return answer.json()


def ended(outsider: Outsider, batch_id: str) -> Json:
    """The batch once it has ended; a gateway that is away is asked again."""

    def look() -> Json | None:
        try:
            batch = outsider.http.get(f"/v1/batches/{batch_id}").json()
        except httpx2.TransportError:
            return None
        return batch if batch["status"] == "ended" else None

    return wait_until(look, f"batch {batch_id} to end", LONG_S, interval_s=0.1)


def results(outsider: Outsider, batch_id: str) -> list[Json]:
    """The batch's results."""
    return [json.loads(line) for line in outsider.http.get(f"/v1/batches/{batch_id}/results").text.splitlines()]


def test_batch_runs_to_its_end(outsider: Outsider) -> None:
    """Every turn of a batch runs as if posted alone, and turns of one session run one after another."""
    bodies = [outsider.body([call("look", n=number), call("put", n=number)], f"done {number}") for number in range(10)]
    bodies += [outsider.body("first", session_id=f"s-{time.time()}")]
    bodies += [outsider.body("second", session_id=bodies[-1]["session_id"])]
    batch = post(outsider, bodies)
    end = ended(outsider, batch["id"])
    assert (end["counts"]["completed"], end["total"]) == (12, 12)
    found = results(outsider, batch["id"])
    assert [line["custom_id"] for line in found] == [f"t{number}" for number in range(12)]
    assert [line["turn"]["output_text"] for line in found] == [f"done {number}" for number in range(10)] + [
        "first",
        "second",
    ]
    for line in found:
        outsider.end(line["turn"]["id"])  # sound
    assert found[-2]["turn"]["finished_at"] <= found[-1]["turn"]["started_at"]


@pytest.mark.one_database("postgres")
def test_cancel_stops_what_runs_and_lets_nothing_begin(outsider: Outsider) -> None:
    """Running turns end long before their models answer; turns that waited for a worker end without having started."""
    slow = {"content": [{"type": "text", "text": "never said"}], "latency_s": 2 * LONG_S}
    batch = post(outsider, [outsider.body(slow) for _ in range(3 * COORDINATORS)])
    wait_until(lambda: running(outsider, batch["id"]) >= COORDINATORS, "the workers to be busy", LONG_S)
    answer = outsider.http.post(f"/v1/batches/{batch['id']}/cancel")
    assert answer.status_code == 202, answer.text
    assert answer.json()["status"] in {"canceling", "ended"}, "the fleet may be faster than the answer"
    assert ended(outsider, batch["id"])["counts"]["cancelled"] == 3 * COORDINATORS
    turns = [line["turn"] for line in results(outsider, batch["id"])]
    assert len([turn for turn in turns if turn["started_at"]]) == COORDINATORS


def running(outsider: Outsider, batch_id: str) -> int:
    """How many of the batch's turns run."""
    return outsider.http.get(f"/v1/batches/{batch_id}").json()["counts"]["running"]


@pytest.mark.one_database("sqlite")
def test_batch_whose_wake_ups_are_never_sent_ends(outsider: Outsider) -> None:
    """If the gateway cannot send any wake-up, the reconciler finds every turn, and each runs once."""
    settings = Settings(database_url=outsider.stack.database_url, redis_url=NOWHERE, dev_keyless=True)
    bodies = [outsider.body([call("put", n=number)], "done") for number in range(30)]
    with serving(settings) as url:
        answer = httpx2.post(f"{url}/v1/batches", json=batch_of(bodies), timeout=30)
        assert answer.status_code == 202, answer.text
    batch_id = answer.json()["id"]
    assert ended(outsider, batch_id)["counts"]["completed"] == 30
    for line in results(outsider, batch_id):
        assert len(outsider.entries(line["turn"]["id"])) == 1


@pytest.mark.acceptance
@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.2])
def test_gateway_killed_behind_its_commit_leaves_a_batch_that_ends(outsider: Outsider, after_s: float) -> None:
    """However many wake-ups were sent by then, all turns end; posting again with the same key finds the same batch."""
    bodies = [outsider.body([call("put", n=number)], "done") for number in range(300)]
    engine = create_engine(sync_url(outsider.stack.database_url))
    pid = role_pid(outsider.stack.home, "gateway")

    def made() -> int:
        with engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(batches)).scalar_one()

    before = made()
    key = {"Idempotency-Key": f"kill-{time.time()}"}

    def post_again() -> httpx2.Response:
        return httpx2.post(
            f"{outsider.stack.gateway_url}/v1/batches", json=batch_of(bodies), headers=key, timeout=60, trust_env=False
        )

    with ThreadPoolExecutor(1) as threads:
        posting = threads.submit(post_again)
        wait_until(lambda: made() > before, "the commit", LONG_S, interval_s=0.002)
        killed_at = time.monotonic() + after_s
        wait_until(lambda: time.monotonic() >= killed_at, "the moment", interval_s=0.005)
        os.kill(pid, signal.SIGKILL)
        posting.exception(LONG_S)
    engine.dispose()

    def answered() -> httpx2.Response | None:
        try:
            return post_again()
        except httpx2.TransportError:
            return None

    again = wait_until(answered, "the stack to start another gateway", LONG_S, interval_s=0.2)
    assert again.status_code == 202, again.text
    assert ended(outsider, again.json()["id"])["counts"]["completed"] == 300
