"""``Prefer: wait``: the answer comes when the turn ends, even if live events are lost."""

# ruff: noqa: ANN401 - columns, bodies and answers are any JSON
from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from sqlalchemy import event, select, text, update
from sqlalchemy.pool import Pool

from api_gateway.app import create_app
from api_gateway.turns.idempotency import IN_FLIGHT, IN_FLIGHT_S
from harness_worker.schema import idempotency_keys, turns
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import Approval
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, gateway_process, problem_of
from tests.relay import Relay

LONG_LOCKED = text(
    "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    " AND clock_timestamp() - query_start > interval '2.5 seconds'"
)
SOON_S = 25.0
"""Long before the wait would be over."""

ASKED = asdict(Approval(expires_at=4_000_000_000.0))


@pytest.fixture
def gateway(sqlite_url: str, gateway_redis: str) -> Generator[Gateway]:
    """A gateway with live events, on SQLite alone."""
    with gateway_on(sqlite_url, gateway_redis) as running:
        yield running


def waiting_post(pool: ThreadPoolExecutor, gateway: Gateway, **given: Any) -> tuple[Future[httpx2.Response], str]:
    """Start a post that waits; returns it, and the turn's id once the turn is stored."""
    answer = pool.submit(gateway.post, **given)

    def stored() -> str | None:
        with gateway.worker.engine.connect() as connection:
            return connection.execute(select(turns.c.id)).scalar_one_or_none()

    turn_id = wait_until(stored, "the turn to be stored")
    assert turn_id is not None
    return answer, turn_id


def next_turn(gateway: Gateway, but: str) -> str:
    """The other turn that is stored besides this one."""
    return wait_until(lambda: [each for each in gateway.ids() if each != but], "the turn to be stored")[0]


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_wait_ends_with_the_turn_as_200(gateway: Gateway, pool: ThreadPoolExecutor, status: str) -> None:
    """A turn that ends in time is answered with 200 and its final state."""
    answer, turn_id = waiting_post(pool, gateway, prefer="wait=50")
    wait_until(lambda: gateway.worker.wake_ups(turn_id), "the wake-up")
    gateway.worker.finish(turn_id, status)
    response = answer.result(SOON_S)
    assert (response.status_code, response.json()["status"]) == (200, status)
    assert response.headers["location"] == f"/v1/turns/{turn_id}"
    assert response.headers["preference-applied"] == "wait=50"


@pytest.mark.parametrize("redis_up", [True, False])
def test_wait_finds_an_end_that_no_live_event_told(
    sqlite_url: str, gateway_redis: str, pool: ThreadPoolExecutor, *, redis_up: bool
) -> None:
    """Without live events the wait looks into SQL every second."""
    with gateway_on(sqlite_url, gateway_redis, redis_url=gateway_redis if redis_up else NOWHERE) as gateway:
        answer, turn_id = waiting_post(pool, gateway, prefer="wait=50")
        gateway.worker.finish(turn_id, live=False)
        assert answer.result(SOON_S).status_code == 200


@pytest.mark.parametrize("live", [True, False])
def test_wait_ends_where_a_turn_below_waits_for_a_person(
    gateway: Gateway, pool: ThreadPoolExecutor, *, live: bool
) -> None:
    """As for the turn's own questions the answer is 202, whether a live event or SQL showed the wait."""
    below = gateway.posted()["id"]
    gateway.worker.call(below, 0, 0, approval=ASKED)
    gateway.worker.change(below, status="requires_action")
    answer = pool.submit(gateway.post, prefer="wait=50", input="above")
    above = next_turn(gateway, below)
    gateway.worker.change(above, status="running", parked_below=[{"turn_id": below, "fence": 1}])
    gateway.worker.event(above, "subagent.requires_action", live=live, call_id="0.0")
    response = answer.result(SOON_S)
    assert (response.status_code, response.json()["status"]) == (202, "running")
    assert [action["turn_id"] for action in response.json()["subagent_actions"]] == [below]


def test_wait_that_ends_first_is_202(database_url: str, gateway_redis: str) -> None:
    """If the turn takes longer than the wait, the answer is 202 with its current state; no connection is lost."""
    lost = list[object]()

    def told(*about: object) -> None:
        lost.append(about)

    with gateway_on(database_url, gateway_redis) as gateway:
        event.listen(Pool, "invalidate", told)
        try:
            response = gateway.post(prefer="wait=3")
        finally:
            event.remove(Pool, "invalidate", told)
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert lost == []


def test_wait_goes_on_for_a_slow_look_at_the_end(
    postgres_url: str, gateway_redis: str, pool: ThreadPoolExecutor
) -> None:
    """A turn that ended in time is answered with its end, even if the database is slow to show it."""
    with gateway_on(postgres_url, gateway_redis) as gateway:
        answer, turn_id = waiting_post(pool, gateway, prefer="wait=50")
        wait_until(lambda: gateway.worker.wake_ups(turn_id), "the wake-up")
        with gateway.worker.engine.begin() as lock:
            lock.execute(text("LOCK TABLE tool_calls IN ACCESS EXCLUSIVE MODE"))
            gateway.worker.finish(turn_id)
            wait_until(lambda: lock.execute(LONG_LOCKED).scalar_one(), "the look to have waited for long")
        response = answer.result(SOON_S)
        assert (response.status_code, response.json()["status"]) == (200, "completed")


@pytest.mark.parametrize("key", [None, "k"])
def test_wait_ends_in_time_though_the_database_stands_still(
    line: Relay, gateway_redis: str, pool: ThreadPoolExecutor, key: str | None
) -> None:
    """The turn is stored, so it is answered as it was last seen."""
    with gateway_on(line.url, gateway_redis) as gateway:
        answer, turn_id = waiting_post(pool, gateway, prefer="wait=3", key=key)
        wait_until(lambda: gateway.worker.wake_ups(turn_id), "the wake-up, which follows the commit")
        line.silence()
        response = answer.result(30)
        assert (response.status_code, response.json()["id"], response.json()["status"]) == (202, turn_id, "queued")


def test_openai_wait_ends_in_time_though_the_database_stands_still(
    line: Relay, gateway_redis: str, pool: ThreadPoolExecutor
) -> None:
    """The answer comes before the client would retry, which would make another turn."""
    with gateway_on(line.url, gateway_redis) as gateway:
        headers, body = {"x-stainless-read-timeout": "4"}, {"model": "support", "input": "hi"}
        answer = pool.submit(gateway.http.post, "/v1/responses", headers=headers, json=body)
        wait_until(
            lambda: [each for each in gateway.ids() if gateway.worker.wake_ups(each)],
            "the wake-up, which follows the commit",
        )
        line.silence()
        response = answer.result(30)
        assert (response.status_code, response.json()["status"]) == (200, "queued"), "as it was seen last"


WAITERS: Final = 50


def test_many_who_wait_look_into_sql_together(
    postgres_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait, they share their queries, so that other requests do not wait behind them."""
    monkeypatch.setattr("api_gateway.concurrency.coalescing.MOMENT_S", 0.5)  # others ask meanwhile on any machine
    with gateway_on(postgres_url, gateway_redis) as gateway:
        looks = 0
        for wait_s in (4, 16, 48):  # a slow machine may need all of it to store the turns
            answers, looks = asyncio.run(wait_together(gateway, wait_s))
            assert answers == [202] * WAITERS
            if looks:
                break
    assert 0 < looks < WAITERS, f"{looks}: each looks every second"


async def wait_together(gateway: Gateway, wait_s: int) -> tuple[list[int], int]:
    """Let many requests wait for turns that do not end; returns the answers' statuses, and how often they read SQL."""
    app = create_app(gateway.settings)
    looks: list[str] = []

    def note(*told: Any) -> None:
        if told[2].startswith("SELECT turns.id, turns.status, turns.last_seq"):
            looks.append(told[2])

    event.listen(app.state.shared.engine.sync_engine, "before_cursor_execute", note)
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
    client = httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)
    async with app.router.lifespan_context(app), client:
        post = partial(client.post, "/v1/turns", json=gateway.defaults, headers={"Prefer": f"wait={wait_s}"})
        answers = await asyncio.gather(*(post() for _ in range(WAITERS)))
    return [answer.status_code for answer in answers], len(looks)


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize("prefer", ["wait=-1", "wait=soon", "wait", "respond-async", "wait=0", "", ";;=", "wait=1e3"])
def test_wait_that_is_senseless_is_ignored(gateway: Gateway, prefer: str) -> None:
    """A preference that cannot be honoured never fails a request."""
    response = gateway.post(prefer=prefer)
    assert response.status_code == 202
    assert "preference-applied" not in response.headers


def test_wait_with_a_key_holds_repeats_off_until_it_is_answered(gateway: Gateway, pool: ThreadPoolExecutor) -> None:
    """Until the first answer is given a repeat is 409; afterwards it gets the first answer's status."""
    answer, turn_id = waiting_post(pool, gateway, prefer="wait=50", key="k")
    problem_of(gateway.post(key="k"), 409, "idempotency_in_flight")
    problem_of(gateway.post(key="k", input="other"), 422, "idempotency_mismatch")
    gateway.worker.finish(turn_id)
    assert answer.result(SOON_S).status_code == 200
    again = gateway.post(key="k")
    assert (again.status_code, again.json()["id"]) == (200, turn_id)


def test_repeat_waits_as_its_first_request_would(gateway: Gateway, pool: ThreadPoolExecutor) -> None:
    """A repeat may wait again; it gets the first answer's status, with the turn's state at that time."""
    first = gateway.post(key="k")
    again = gateway.post(key="k", prefer="wait=1")
    assert again.elapsed.total_seconds() >= 1
    waiting = pool.submit(gateway.post, key="k", prefer="wait=50")
    gateway.worker.finish(first.json()["id"])
    answers = [first, again, waiting.result(SOON_S), gateway.post(key="k", prefer="wait=50")]
    assert [answer.status_code for answer in answers] == [202] * 4
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert [answer.json()["status"] for answer in answers] == ["queued", "queued", "completed", "completed"]
    assert answers[3].elapsed.total_seconds() < SOON_S


def test_key_of_a_gateway_that_died_is_answered_with_its_turn(
    gateway: Gateway, gateway_redis: str, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """If the first request was never answered, repeats get the turn once it has ended, all with one status."""
    with gateway_process(gateway.settings.database_url, gateway_redis, tmp_path / "log") as doomed:
        headers = {"Prefer": "wait=50", "Idempotency-Key": "k"}
        first = pool.submit(httpx2.post, f"{doomed.url}/v1/turns", json=gateway.defaults, headers=headers, timeout=60)
        (turn_id,) = wait_until(gateway.ids, "the turn to be stored")
        doomed.process.kill()
        with pytest.raises(httpx2.TransportError):
            first.result(SOON_S)
    problem_of(gateway.post(key="k"), 409, "idempotency_in_flight")
    gateway.worker.finish(turn_id)
    for _ in range(2):
        again = gateway.post(key="k")
        assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, turn_id, "completed")
        assert again.headers["location"] == f"/v1/turns/{turn_id}"


def test_key_whose_first_answer_never_came_keeps_the_status_that_a_repeat_was_told(gateway: Gateway) -> None:
    """After the longest possible wait a repeat is answered with the turn; later ones keep that status."""
    turn_id = gateway.posted(key="k")["id"]
    with gateway.worker.engine.begin() as connection:
        left = {"status_code": IN_FLIGHT, "created_at": idempotency_keys.c.created_at - IN_FLIGHT_S}
        connection.execute(update(idempotency_keys).values(left))
    assert gateway.post(key="k").status_code == 202
    gateway.worker.finish(turn_id)
    again = gateway.post(key="k")
    assert (again.status_code, again.json()["status"]) == (202, "completed")


def test_each_key_is_answered_with_its_own_turn(gateway: Gateway, pool: ThreadPoolExecutor) -> None:
    """The end of a turn, and the first answer about it, free no key of another turn."""
    answer, turn_id = waiting_post(pool, gateway, prefer="wait=50", key="k")
    second = gateway.posted(key="k2")["id"]
    gateway.posted(key="k3")
    with gateway.worker.engine.begin() as connection:
        connection.execute(update(idempotency_keys).values(status_code=IN_FLIGHT))
    gateway.worker.finish(turn_id)
    assert answer.result(SOON_S).status_code == 200
    problem_of(gateway.post(key="k2"), 409, "idempotency_in_flight")
    gateway.worker.finish(second)
    again = gateway.post(key="k2")
    assert (again.status_code, again.json()["id"]) == (200, second)
    problem_of(gateway.post(key="k3"), 409, "idempotency_in_flight")


def test_client_that_leaves_a_wait_leaves_its_key_usable(gateway: Gateway) -> None:
    """A repeat is answered soon, not refused for as long as the first wait would have lasted."""
    body = json.dumps(gateway.defaults).encode()
    head = f"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(f"{head}Prefer: wait=50\r\nIdempotency-Key: cut\r\n\r\n".encode() + body)
        first = wait_until(gateway.ids, "the turn to be stored")
        problem_of(gateway.post(key="cut"), 409, "idempotency_in_flight")
    again = wait_until(lambda: _unless_in_flight(gateway.post(key="cut")), "the key to be free")
    assert (again.status_code, [again.json()["id"]]) == (202, first)


def _unless_in_flight(answer: httpx2.Response) -> httpx2.Response | None:
    return None if answer.status_code == 409 else answer
