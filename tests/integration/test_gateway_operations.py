"""The gateway for operators: health, readiness, access without keys, restarts, shutdown, the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import jsonschema_rs
import psycopg
import pytest
from kombu.exceptions import OperationalError
from sqlalchemy import select, text

from api_gateway import database as gateway_database
from api_gateway.app import create_app
from api_gateway.config import Settings
from api_gateway.problems import UNREACHABLE, no_database
from api_gateway.publisher import THREADS, Publisher
from api_gateway.services import Shared
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.schema import db_now
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import turn_queue
from tests.integration.gateway_kit import (
    NOWHERE,
    Gateway,
    gateway_on,
    gateway_process,
    is_healthy,
    problem_of,
    redis_at,
    serving,
    shut_down,
    statuses,
)
from tests.relay import Relay
from tests.stacks import run_here


def test_ready_gateway_says_so(gateway: Gateway) -> None:
    """``/healthz`` and ``/readyz`` answer 200."""
    assert gateway.http.get("/healthz").json() == {"status": "ok"}
    assert gateway.http.get("/readyz").json() == {"status": "ok"}


def test_bug_announces_that_its_connection_is_closed(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """After a bug the answer says that its connection closes, so that no next request is lost on it; 500 is logged."""
    caplog.set_level("INFO", "api_gateway.access")
    turn_id = gateway.posted()["id"]
    gateway.worker.change(turn_id, used="nonsense")
    for _ in range(20):
        failed = gateway.http.get(f"/v1/turns/{turn_id}")
        problem_of(failed, 500, "internal")
        assert failed.headers["connection"] == "close"
        assert gateway.http.get("/healthz").status_code == 200
    wait_until(lambda: statuses(caplog).count(500) == 20, "each to be logged")


def test_rush_waits_in_line_and_is_told_of_it_where_that_takes_too_long(
    postgres_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that get no database connection in time are told to try again later; the others are served."""
    monkeypatch.setattr(gateway_database, "POOL_SIZE", 1)  # and one more at need
    monkeypatch.setattr(gateway_database, "POOL_TIMEOUT_S", 0.5)
    with gateway_on(postgres_url, gateway_redis, redis_url=NOWHERE) as gateway, ThreadPoolExecutor(8) as clients:
        gateway.posted()
        with gateway.worker.engine.begin() as connection:
            connection.execute(text("lock table turns in access exclusive mode"))
            posts = [clients.submit(gateway.post) for _ in range(8)]
            wait_until(lambda: sum(post.done() for post in posts) == 6, "all but two to be refused")
            for post in [post for post in posts if post.done()]:
                problem = problem_of(post.result(), 503, "not_ready")
                assert problem["detail"].startswith("more requests at once than this gateway can work on")
                assert int(post.result().headers["retry-after"]) >= 1
        assert sorted(post.result().status_code for post in posts) == [202] * 2 + [503] * 6


def waiting_for_locks(gateway: Gateway) -> int:
    """How many connections to the gateway's database wait for a lock."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with gateway.worker.engine.connect() as connection:
        return connection.execute(text(waiting)).scalar_one()


WALKS = ("metadata.k=never", "agent=nobody", "status=failed&agent=nobody")


def test_lists_that_may_walk_all_turns_hold_one_connection_of_a_tenant(
    postgres_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are requested at once, the others wait for that connection, and other requests get theirs."""
    monkeypatch.setattr(gateway_database, "POOL_SIZE", 1)  # and one more at need
    monkeypatch.setattr(gateway_database, "POOL_TIMEOUT_S", 0.5)
    with gateway_on(postgres_url, gateway_redis, redis_url=NOWHERE) as gateway, ThreadPoolExecutor(8) as clients:
        with gateway.worker.engine.begin() as connection:
            connection.execute(text("lock table turns in access exclusive mode"))
            lists = [clients.submit(gateway.http.get, f"/v1/turns?{query}") for query in WALKS * 2]
            usage = clients.submit(gateway.http.get, "/v1/usage")
            wait_until(lambda: waiting_for_locks(gateway) > 0, "a list to wait for the table")
            assert [gateway.http.get("/v1/agents").status_code for _ in range(10)] == [200] * 10
            assert not any(answer.done() for answer in (*lists, usage))
        assert [answer.result().status_code for answer in (*lists, usage)] == [200] * 7


def test_gateway_without_its_tables_is_not_ready(gateway: Gateway) -> None:
    """A missing table makes ``/readyz`` and requests 503, naming the database; the process stays alive."""
    texts = ("scores", "memories", "tool_calls", "turn_events", "messages")
    tables = ("api_keys", "idempotency_keys", "webhooks", "past_turns", "past_messages", *texts, "turns")
    with gateway.worker.engine.begin() as connection:
        for table in tables:
            connection.execute(text(f"drop table {table}"))
    problem = problem_of(gateway.http.get("/readyz"), 503, "not_ready")
    assert problem["missing"] == ["database"]
    assert "harness migrate" in problem["detail"]
    problem_of(gateway.post(), 503, "not_ready")
    problem_of(gateway.http.get("/v1/turns"), 503, "not_ready")
    assert gateway.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("database", ["sqlite:////nowhere/harness.db", "postgresql://u:secret@127.0.0.1:1/x"])
def test_gateway_without_anything_is_alive_but_not_ready(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without database and broker it starts, names both, logs why, and reveals no secret."""
    with serving(Settings(database_url=database, redis_url=NOWHERE, dev_keyless=True)) as url:
        assert httpx2.get(f"{url}/healthz").status_code == 200
        problem = problem_of(httpx2.get(f"{url}/readyz"), 503, "not_ready")
        assert problem["missing"] == ["database", "broker"]
        assert ("not ready: the database: " in caplog.text, "not ready: the broker: " in caplog.text) == (True, True)
        assert "secret" not in caplog.text
        refused = httpx2.post(f"{url}/v1/turns", json={"agent": "a", "input": "x"})
        assert "secret" not in problem_of(refused, 503, "not_ready")["detail"]


def test_asking_a_broker_that_is_away_keeps_no_thread() -> None:
    """However often it is checked, threads remain for sending wake-ups."""

    async def asked() -> None:
        publisher = Publisher(f"amqp://127.0.0.1:{free_port()}//", timeout_s=20.0)
        for _ in range(THREADS + 1):
            with pytest.raises(OperationalError):
                await publisher.check()
        publisher.close()

    asyncio.run(asked())


@pytest.mark.parametrize("asked_for", ["missing", "figures"])
def test_who_asks_while_others_are_answered_gets_their_answer(sqlite_url: str, asked_for: str) -> None:
    """``/readyz`` and ``/metrics`` need no key, so simultaneous requests share one reading of the database.

    It is finished even if the first client leaves; a later request has a reading of its own.
    """

    async def asked() -> None:
        shared: Shared = create_app(Settings(database_url=sqlite_url, redis_url=NOWHERE)).state.shared
        look = {"missing": shared.missing, "figures": shared.figures.read}[asked_for]
        leaves = asyncio.create_task(look())
        others = [asyncio.create_task(look()) for _ in range(5)]
        await asyncio.sleep(0)
        leaves.cancel()
        first, *rest = await asyncio.gather(*others)
        assert all(each is first for each in rest)
        assert leaves.cancelled()
        assert await look() is not first
        shared.publisher.close()
        await shared.engine.dispose()

    asyncio.run(asked())


@pytest.mark.parametrize(("keyless", "status"), [(True, 403), (False, 401)])
def test_preflight_of_a_browser_is_told_that_browsers_cannot_call(
    sqlite_url: str, *, keyless: bool, status: int
) -> None:
    """A preflight never carries a key, so a message about keys, or about this machine, would mislead."""
    settings = Settings(database_url=sqlite_url, redis_url=NOWHERE, dev_keyless=keyless)
    asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    with serving(settings) as url:
        answer = httpx2.options(f"{url}/v1/turns", headers=asks)
        posted = httpx2.post(f"{url}/v1/turns", json={}, headers=asks)
    problem = problem_of(answer, status, "forbidden" if keyless else "unauthorized")
    assert problem["detail"].startswith("browsers cannot call this API: ")
    assert posted.json()["detail"] != problem["detail"]


def test_gateway_survives_the_restart_of_redis(sqlite_url: str) -> None:
    """Posts are accepted while Redis is away; once it is back, wake-ups and live events are sent again."""
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with valkey_on(port), gateway_on(sqlite_url, url) as gateway:
        first = gateway.posted()["id"]
        assert gateway.worker.wake_ups(first)
        shut_down(port)
        assert gateway.posted()["status"] == "queued"
        problem_of(gateway.http.get("/readyz"), 503, "not_ready")
        with valkey_on(port):
            wait_until(lambda: gateway.http.get("/readyz").status_code == 200, "the gateway to be ready again")
            again = wait_until(lambda: _woken(gateway), "a wake-up to be sent")
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(
                    gateway.http.get, f"/v1/turns/{again}/events", headers={"Accept": "text/event-stream"}
                )
                gateway.worker.finish(again)
                assert "turn.completed" in answer.result(30).text


@contextmanager
def valkey_on(port: int) -> Generator[None]:
    """Run a Valkey on that port."""
    with valkey_service(port) as url:
        assert f":{port}" in url
        yield


def _woken(gateway: Gateway) -> str:
    turn_id = gateway.posted()["id"]
    return turn_id if gateway.worker.wake_ups(turn_id) else ""


def test_gateways_time_tells_moments_apart(database_url: str) -> None:
    """Its clock is the worker's: the database's, to the microsecond."""

    async def asked() -> list[float]:
        engine = gateway_database.create_engine(database_url)
        async with engine.connect() as connection:
            found = [(await connection.execute(select(db_now()))).scalar_one() for _ in range(20)]
        await engine.dispose()
        return found

    times = asyncio.run(asked())
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("setting", "ours"), [("idle_in_transaction_session_timeout", "5s"), ("statement_timeout", "30s")]
)
@pytest.mark.parametrize("theirs", ["", "9s"])
def test_gateway_holds_no_row_and_no_connection_for_long(
    postgres_url: str, setting: str, ours: str, theirs: str
) -> None:
    """Postgres ends idle transactions and long statements after these times, unless the URL has others."""

    async def told() -> object:
        given = f"?options=-c%20{setting}%3D{theirs}" if theirs else ""
        engine = gateway_database.create_engine(postgres_url + given)
        async with engine.connect() as connection:
            shown = (await connection.execute(text(f"SHOW {setting}"))).scalar_one()
        await engine.dispose()
        return shown

    assert asyncio.run(told()) == (theirs or ours)


@pytest.mark.parametrize(("given", "named"), [("", "harness-gateway"), ("?application_name=mine", "mine")])
def test_connection_of_the_gateway_is_named_as_the_url_says(postgres_url: str, given: str, named: str) -> None:
    """A name in the URL takes precedence, as for a worker's connections."""

    async def told() -> object:
        engine = gateway_database.create_engine(postgres_url + given)
        async with engine.connect() as connection:
            shown = (await connection.execute(text("SHOW application_name"))).scalar_one()
        await engine.dispose()
        return shown

    assert asyncio.run(told()) == named


def test_gateway_leaves_a_server_that_only_reads(postgres_url: str) -> None:
    """After a failover old connections refuse writes: the client is told to retry, which uses a new connection."""

    async def failed() -> tuple[Exception, bool]:
        engine = gateway_database.create_engine(f"{postgres_url}?options=-c%20default_transaction_read_only%3Don")
        async with engine.connect() as connection:
            before = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        with pytest.raises(UNREACHABLE) as refused:
            async with engine.begin() as connection:
                await connection.execute(text("CREATE TABLE written (id int)"))
        async with engine.connect() as connection:
            after = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        await engine.dispose()
        return refused.value, before != after

    refused, is_another = asyncio.run(failed())
    assert no_database(refused).status == 503
    assert is_another


def test_gateway_on_a_server_that_only_reads_is_not_ready(postgres_url: str, gateway_redis: str) -> None:
    """After a failover ``/readyz`` and posts say so; connections from then are dropped once the server takes writes."""
    writes = postgres_url.replace("+psycopg", "") + "?options=-c%20default_transaction_read_only%3Doff"
    with (
        gateway_on(postgres_url, gateway_redis) as gateway,
        psycopg.connect(writes, autocommit=True) as admin,
    ):
        assert gateway.http.get("/readyz").status_code == 200
        name = admin.info.dbname
        admin.execute(f'alter database "{name}" set default_transaction_read_only = on'.encode())
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
        admin.execute(ended, [name])
        for answer in (gateway.http.get("/readyz"), gateway.post()):
            problem = problem_of(answer, 503, "not_ready")
            assert problem["missing"] == ["database"]
            assert problem["detail"].startswith("the database takes no writes: it is a replica, or read-only")
        admin.execute(f'alter database "{name}" reset default_transaction_read_only'.encode())
        wait_until(lambda: gateway.http.get("/readyz").status_code == 200, "the gateway to be ready again")
        gateway.posted()


def test_client_of_a_statement_that_took_too_long_is_told_to_try_again(postgres_url: str) -> None:
    """Postgres ended the statement: the answer is 503, not a bug's 500."""

    async def failed() -> None:
        engine = gateway_database.create_engine(f"{postgres_url}?options=-c%20statement_timeout%3D1ms")
        try:
            async with engine.begin() as connection:
                await connection.execute(text("SELECT pg_sleep(30)"))
        finally:
            await engine.dispose()

    with pytest.raises(UNREACHABLE) as ended:
        asyncio.run(failed())
    assert no_database(ended.value).status == 503


def test_gateway_that_stood_still_says_to_try_again(postgres_url: str) -> None:
    """Postgres ended the idle transaction: the answer is 503, not a bug's 500."""

    async def failed() -> None:
        engine = gateway_database.create_engine(
            f"{postgres_url}?options=-c%20idle_in_transaction_session_timeout%3D1ms"
        )
        try:
            async with engine.begin() as connection:
                pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
                wait_until(lambda: not _is_there(postgres_url, pid), "Postgres to end the transaction")
        finally:
            await engine.dispose()

    with pytest.raises(UNREACHABLE) as ended:
        asyncio.run(failed())
    assert no_database(ended.value).status == 503


def _is_there(postgres_url: str, pid: int) -> bool:
    with psycopg.connect(postgres_url) as connection:
        return connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is not None


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/agents", "/v1/turns/x/events", "/v1", "/v1/nothing"])
def test_api_without_keys_is_closed_unless_asked_for(sqlite_url: str, path: str) -> None:
    """Without HARNESS_DEV_KEYLESS=1 every request of the API is 401, whatever token it has; health is open."""
    with serving(Settings(database_url=sqlite_url, redis_url=NOWHERE)) as url:
        for headers in ({}, {"Authorization": "Bearer x"}):
            response = httpx2.get(url + path, headers=headers)
            problem_of(response, 401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"
        assert httpx2.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "localhost:1", "Origin": "http://localhost:3000"},
        {"Host": "localhost:1", "Origin": "http://127.0.0.1:1"},
        {"Host": "localhost:1", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_keyless_api_refuses_pages_of_others(sqlite_url: str, headers: dict[str, str]) -> None:
    """No other page in a browser may post or read turns, not even one of another port of this machine."""
    settings = Settings(database_url=sqlite_url, redis_url=NOWHERE, dev_keyless=True)
    with serving(settings) as url:
        for method in ("GET", "POST"):
            problem_of(httpx2.request(method, f"{url}/v1/turns", headers=headers), 403, "forbidden")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:1", "Origin": "http://localhost:1", "Sec-Fetch-Site": "same-origin"},
        {"Host": "[::1]:1", "Origin": "http://[::1]:1"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_keyless_api_serves_its_own_page_and_who_types_the_address(sqlite_url: str, headers: dict[str, str]) -> None:
    """``/docs`` works, also through a forwarded port, and so does curl, which sends none of these headers."""
    settings = Settings(database_url=sqlite_url, redis_url=NOWHERE, dev_keyless=True)
    with serving(settings) as url:
        assert httpx2.get(f"{url}/v1/turns", headers=headers).status_code == 200


def test_openapi_describes_what_is_answered(gateway: Gateway) -> None:
    """The document has every route, and real answers fit its schemas."""
    document = gateway.http.get("/openapi.json").json()
    assert set(document["paths"]) == {
        *("/v1/turns", "/v1/turns/{turn_id}", "/v1/turns/{turn_id}/cancel", "/v1/turns/{turn_id}/inputs"),
        "/v1/turns/{turn_id}/fork",
        *("/v1/turns/{turn_id}/scores", "/v1/turns/{turn_id}/webhook", "/v1/turns/{turn_id}/usage", "/v1/usage"),
        *("/v1/batches", "/v1/batches/{batch_id}", "/v1/batches/{batch_id}/cancel", "/v1/batches/{batch_id}/results"),
        *("/v1/turns/{turn_id}/events", "/v1/agents", "/v1/sessions", "/v1/sessions/{session_id}"),
        "/v1/artifacts/{artifact_id}",
        *("/v1/models", "/v1/models/{model}", "/v1/chat/completions"),
        *("/v1/responses", "/v1/responses/{turn_id}", "/v1/responses/{turn_id}/cancel"),
        *("/healthz", "/readyz", "/metrics"),
    }
    answer = gateway.post()
    posting = document["paths"]["/v1/turns"]["post"]
    _fits(document, posting["responses"]["202"]["content"]["application/json"]["schema"], answer.json())
    problem = gateway.post(agent="nobody")
    _fits(document, posting["responses"]["404"]["content"]["application/problem+json"]["schema"], problem.json())
    body = posting["requestBody"]["content"]["application/json"]["schema"]
    _fits(document, body, {**gateway.defaults, "budget": {"max_steps": 1}, "metadata": {"a": "b"}})
    asking = document["paths"]["/v1/responses"]["post"]
    asked = {"model": gateway.defaults["agent"], "input": [{"role": "user", "content": "x"}], "background": True}
    _fits(document, asking["requestBody"]["content"]["application/json"]["schema"], asked)
    told = gateway.http.post("/v1/responses", json=asked)
    _fits(document, asking["responses"]["200"]["content"]["application/json"]["schema"], told.json())
    refused = gateway.http.post("/v1/responses", json={**asked, "n": 2})
    _fits(document, asking["responses"]["422"]["content"]["application/json"]["schema"], refused.json())
    _check_batches(document, gateway)
    listing = document["paths"]["/v1/turns"]["get"]
    _fits(
        document,
        listing["responses"]["200"]["content"]["application/json"]["schema"],
        gateway.http.get("/v1/turns").json(),
    )
    for path in ("/v1/turns/{turn_id}/usage", "/v1/usage"):
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        _fits(document, schema, gateway.http.get(path.format(turn_id=answer.json()["id"])).json())
    assert {"401", "403", "422", "500", "503"} <= set(listing["responses"])
    assert gateway.http.get("/docs").status_code == 200
    problem_of(gateway.http.get("/redoc"), 404, "not_found")


def _check_batches(document: dict[str, Any], gateway: Gateway) -> None:
    posting = document["paths"]["/v1/batches"]["post"]
    items = [{"custom_id": "a", "params": {**gateway.defaults, "budget": {"max_steps": 1}}}]
    body = posting["requestBody"]["content"]["application/json"]["schema"]
    _fits(document, body, {"requests": items})
    with pytest.raises(jsonschema_rs.ValidationError):
        _fits(document, body, {"requests": [{**items[0], "custom_id": "a b"}]})
    made = gateway.http.post("/v1/batches", json={"requests": items})
    _fits(document, posting["responses"]["202"]["content"]["application/json"]["schema"], made.json())
    gateway.worker.finish(gateway.ids(batch_id=made.json()["id"])[0])
    (content,) = document["paths"]["/v1/batches/{batch_id}/results"]["get"]["responses"]["200"]["content"].items()
    line = gateway.http.get(made.json()["results_url"])
    assert content[0] == line.headers["content-type"]
    _fits(document, content[1]["schema"], json.loads(line.text))


@pytest.mark.parametrize(
    ("include", "parts"),
    [
        ("", set[str]()),
        ("?include=messages", {"context", "messages"}),
        ("?include=scores", {"scores"}),
        ("?include=messages,scores", {"context", "messages", "scores"}),
    ],
)
def test_openapi_describes_a_turn_with_any_of_its_parts(gateway: Gateway, include: str, parts: set[str]) -> None:
    """One schema fits all variants; parts that were not asked for are absent, and each part has its own shape."""
    document = gateway.http.get("/openapi.json").json()
    answer = document["paths"]["/v1/turns/{turn_id}"]["get"]["responses"]["200"]["content"]["application/json"]
    turn = gateway.http.get(f"/v1/turns/{gateway.post().json()['id']}{include}").json()
    _fits(document, answer["schema"], turn)
    assert {"context", "messages", "scores"} & turn.keys() == parts
    if "messages" in parts:
        with pytest.raises(jsonschema_rs.ValidationError):
            _fits(document, answer["schema"], {**turn, "messages": [{"role": "user"}]})


def _fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:  # noqa: ANN401 - any JSON
    jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def test_openapi_names_the_headers_and_the_filter_that_are_heeded(gateway: Gateway) -> None:
    """Each parameter is listed once with one schema, accepts real values, and affects real answers."""
    document = gateway.http.get("/openapi.json").json()
    for path in ("/v1/turns", "/v1/batches", "/v1/responses", "/v1/chat/completions"):
        key = _parameters(document, path, "post")["header", "Idempotency-Key"]
        _fits(document, key["schema"], "k" * 255)
        assert not jsonschema_rs.is_valid(key["schema"], "")
    posting, forking = (_parameters(document, f"/v1/turns{path}", "post") for path in ("", "/{turn_id}/fork"))
    assert set(posting) == {("header", "Idempotency-Key"), ("header", "Prefer"), ("header", "traceparent")}
    assert set(forking) == {*posting, ("path", "turn_id")}
    _fits(document, posting["header", "Prefer"]["schema"], "wait=0.1")
    listing = _parameters(document, "/v1/turns", "get")
    assert {name for _, name in listing} == {
        *("after", "limit", "status", "session_id", "agent", "batch_id", "parent_id", "metadata")
    }
    narrow = {"metadata.no": "such"}
    _fits(document, listing["query", "metadata"]["schema"], narrow)
    assert not jsonschema_rs.is_valid(listing["query", "metadata"]["schema"], {"no": "such"})
    adding_up = _parameters(document, "/v1/usage", "get")
    narrowed = {"status", "session_id", "agent", "batch_id", "parent_id", "metadata"}
    assert {name for _, name in adding_up} == {"from", "to", "by", "limit", *narrowed}
    _fits(document, adding_up["query", "from"]["schema"], "2026-01-31T18:00:00Z")
    headers = {"Idempotency-Key": "k", "Prefer": "wait=0.1"}
    posted = gateway.http.post("/v1/turns", json=gateway.defaults, headers=headers)
    assert posted.headers["preference-applied"] == "wait=0.1"
    assert gateway.http.get("/v1/turns", params=narrow).json()["data"] == []


def _parameters(document: dict[str, Any], path: str, method: str) -> dict[tuple[str, str], Any]:
    """An operation's parameters by place and name."""
    parameters = document["paths"][path][method]["parameters"]
    found = {(each["in"], each["name"]): each for each in parameters}
    assert len(found) == len(parameters)
    for each in parameters:
        jsonschema_rs.meta.validate(each["schema"])
    return found


def test_openapi_references_nothing_that_is_missing(gateway: Gateway) -> None:
    """Each reference names a schema of the document."""
    document = gateway.http.get("/openapi.json").json()
    named = set(document["components"]["schemas"])
    referenced = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
    assert referenced <= named


def test_openapi_lets_generated_clients_leave_out_what_may_be_left_out(gateway: Gateway) -> None:
    """Some generators take a member with a default for one that is always there, even if the default is ``null``."""
    schemas = gateway.http.get("/openapi.json").json()["components"]["schemas"]
    sent = ("TurnRequest", "BudgetRequest", "ForkRequest", "InputRequest", "BatchParams", "ChatRequest", "InputMessage")
    members = {
        f"{name}.{member}": schema
        for name in (*sent, "ResponseRequest", "ProblemDocument")
        for member, schema in schemas[name]["properties"].items()
    }
    assert [name for name, schema in members.items() if schema.get("default", ...) is None] == []
    assert schemas["TurnRequest"]["required"] == ["agent", "input"]


def test_openapi_bounds_numbers_in_the_words_of_json_schema(gateway: Gateway) -> None:
    """No bound is in pydantic's own terms, which clients do not know; a list's limit is 1 to 200."""
    document = gateway.http.get("/openapi.json").json()
    raw = ("ge", "le", "gt", "lt", "min_length", "max_length", "multiple_of")
    assert [name for name in raw if f'"{name}":' in json.dumps(document)] == []
    limit = _parameters(document, "/v1/turns", "get")["query", "limit"]["schema"]
    assert [jsonschema_rs.is_valid(limit, number) for number in (0, 1, 200, 201)] == [False, True, True, False]


def test_shutdown_answers_those_who_wait(sqlite_url: str, gateway_redis: str, tmp_path: Path) -> None:
    """SIGTERM ends waits and streams at once with a true answer, closes idle connections, and ends the process."""
    opened = threading.Event()

    def follow(turn: str) -> str:
        sse = {"Accept": "text/event-stream"}
        with httpx2.stream("GET", f"{turn}/events", headers=sse, timeout=30) as stream:
            opened.set()
            return "".join(stream.iter_text())

    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE):
        pass  # The agent is published.
    with gateway_process(sqlite_url, gateway_redis, tmp_path / "log") as gateway:
        url = gateway.url
        with ThreadPoolExecutor(2) as pool, httpx2.Client() as idle:
            assert idle.get(f"{url}/healthz").headers.get("connection") is None
            body = {"agent": "support", "input": "x"}
            post = pool.submit(httpx2.post, f"{url}/v1/turns", json=body, headers={"Prefer": "wait=50"}, timeout=30)
            turn_id = wait_until(lambda: _first_turn(url), "the turn")
            stream = pool.submit(follow, f"{url}/v1/turns/{turn_id}")
            assert opened.wait(30)
            gateway.process.send_signal(signal.SIGTERM)
            assert post.result(30).status_code == 202
            assert "turn.queued" in stream.result(30)
            gateway.process.wait(30)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        ("/v1/turns", {"agent": "support", "input": "x"}, 202),
        ("/v1/responses", {"model": "support", "input": "x"}, 200),
    ],
)
def test_shutdown_answers_those_who_wait_though_the_database_stands_still(
    line: Relay, gateway_redis: str, tmp_path: Path, path: str, asked: dict[str, str], status: int
) -> None:
    """The turn is stored, so it is answered as it was last seen; without an answer, OpenAI's client would ask again."""
    with gateway_on(line.url, gateway_redis, redis_url=NOWHERE):
        pass  # The agent is published.
    broker = redis_at(gateway_redis)
    with closing(broker), gateway_process(line.url, gateway_redis, tmp_path / "log") as gateway:
        url = gateway.url
        before = broker.llen(turn_queue("interactive"))
        with ThreadPoolExecutor(1) as pool:
            post = pool.submit(httpx2.post, f"{url}{path}", json=asked, headers={"Prefer": "wait=60"}, timeout=60)
            turn_id = wait_until(lambda: _first_turn(url), "the turn")
            wait_until(lambda: broker.llen(turn_queue("interactive")) > before, "its wake-up")
            line.silence()
            gateway.process.send_signal(signal.SIGTERM)
            answer = post.result(60)
        assert (answer.status_code, answer.json()["id"]) == (status, turn_id)
        gateway.process.wait(60)
    assert "Traceback" not in (tmp_path / "log").read_text()


UNFINISHED: Final = b"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"


def test_shutdown_tells_those_whose_time_is_over_to_come_again(
    sqlite_url: str, gateway_redis: str, tmp_path: Path
) -> None:
    """The server cancels them; nothing in the log looks like a bug."""
    with gateway_process(sqlite_url, gateway_redis, tmp_path / "log", grace_s=2) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as client:
            client.sendall(UNFINISHED)
            assert client.recv(1_000).startswith(b"HTTP/1.1 100 "), "its body is waited for"
            gateway.process.send_signal(signal.SIGTERM)
            head, _, body = b"".join(iter(partial(client.recv, 1_000), b"")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1" in head
        assert json.loads(body)["code"] == "not_ready"
        assert gateway.process.wait(30) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_ends_a_gateway_that_stops_at_once(
    sqlite_url: str, gateway_redis: str, tmp_path: Path, first: signal.Signals
) -> None:
    """It waits for no request any longer, whose connection is cut; nothing in the log looks like a bug."""
    with (
        gateway_process(sqlite_url, gateway_redis, tmp_path / "log", grace_s=600) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as client,
    ):
        client.sendall(UNFINISHED)
        assert client.recv(1_000).startswith(b"HTTP/1.1 100 "), "its body is waited for"
        gateway.process.send_signal(first)
        wait_until(lambda: not is_healthy(gateway.url), "the gateway to take no more connections")
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.process.wait(30) == 0
        assert client.recv(1_000) == b""
    assert "Traceback" not in (tmp_path / "log").read_text()


def _first_turn(url: str) -> str:
    turns = httpx2.get(f"{url}/v1/turns").json()["data"]
    return turns[0]["id"] if turns else ""


@pytest.mark.parametrize("database_url", ["", "mysql://h/d", "sqlite"])
def test_start_with_a_wrong_setting_ends_with_its_name(database_url: str) -> None:
    """The exit code is 2, and one line says what to change, without a traceback."""
    told = run_here("gateway", env={"HARNESS_DATABASE_URL": database_url, "HARNESS_REDIS_URL": NOWHERE})
    assert told.returncode == 2
    assert told.stderr.startswith("harness: HARNESS_DATABASE_URL")
    assert "Traceback" not in told.stderr


def test_log_has_a_line_a_request_and_no_text_of_users(sqlite_url: str, gateway_redis: str, tmp_path: Path) -> None:
    """Each line has method, path, status and time, in ASCII; inputs, keys and queries are not logged."""
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE):
        pass
    log = tmp_path / "log"
    with gateway_process(sqlite_url, gateway_redis, log) as gateway:
        url = gateway.url
        headers = {"Authorization": "Bearer my-key"}
        httpx2.post(f"{url}/v1/turns", json={"agent": "support", "input": "my-text"}, headers=headers)
        httpx2.get(f"{url}/v1/turns", params={"metadata.a": "my-value"})
        httpx2.get(f"{url}/v1/%C2%9B2J%E2%80%AE")
        wait_until(lambda: '"path": "/v1/\\u009b2J\\u202e"' in log.read_text(), "the log line")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    posts = [line for line in lines if line.get("method") == "POST"]
    assert [(line["path"], line["status"], line["logger"]) for line in posts] == [
        ("/v1/turns", 202, "api_gateway.access")
    ]
    assert posts[0]["elapsed_ms"] > 0
    assert log.read_text().isascii()
    assert not any(secret in log.read_text() for secret in ("my-key", "my-text", "my-value"))


def test_each_line_of_the_log_has_its_time_and_level(sqlite_url: str, tmp_path: Path) -> None:
    """Warnings, and lines of the server too, are JSON objects, so that collectors need no rules of their own."""
    with gateway_on(sqlite_url, NOWHERE):
        pass
    log = tmp_path / "log"
    with gateway_process(sqlite_url, NOWHERE, log) as gateway:
        assert httpx2.get(f"{gateway.url}/readyz").status_code == 503
        wait_until(lambda: "not ready" in log.read_text(), "the warning")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None
    said = {(line["level"], line["logger"]) for line in lines}
    assert said >= {("info", "uvicorn.error"), ("warning", "api_gateway.routes.health")}
