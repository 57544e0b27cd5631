"""The gateway for operators: health, readiness, access without keys, a restart of Redis, wrong settings, the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import httpx2
import pytest
from kombu.exceptions import OperationalError
from sqlalchemy import text

from api_gateway.app import create_app
from api_gateway.config import Settings
from api_gateway.publisher import THREADS, Publisher
from api_gateway.services import Shared
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import (
    NOWHERE,
    Gateway,
    gateway_on,
    gateway_process,
    problem_of,
    serving,
    shut_down,
    statuses,
)
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
        assert httpx2.get(f"{url}/healthz", timeout=30).status_code == 200
        problem = problem_of(httpx2.get(f"{url}/readyz", timeout=30), 503, "not_ready")
        assert problem["missing"] == ["database", "broker"]
        assert ("not ready: the database: " in caplog.text, "not ready: the broker: " in caplog.text) == (True, True)
        assert "secret" not in caplog.text
        refused = httpx2.post(f"{url}/v1/turns", json={"agent": "a", "input": "x"}, timeout=30)
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
        posted = httpx2.post(f"{url}/v1/turns", json={}, headers=asks, timeout=30)
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


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/agents", "/v1/turns/x/events", "/v1", "/v1/nothing"])
def test_api_without_keys_is_closed_unless_asked_for(sqlite_url: str, path: str) -> None:
    """Without HARNESS_DEV_KEYLESS=1 every request of the API is 401, whatever token it has; health is open."""
    with serving(Settings(database_url=sqlite_url, redis_url=NOWHERE)) as url:
        for headers in ({}, {"Authorization": "Bearer x"}):
            response = httpx2.get(url + path, headers=headers, timeout=30)
            problem_of(response, 401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"
        assert httpx2.get(f"{url}/healthz", timeout=30).status_code == 200


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
            problem_of(httpx2.request(method, f"{url}/v1/turns", headers=headers, timeout=30), 403, "forbidden")


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
        assert httpx2.get(f"{url}/v1/turns", headers=headers, timeout=30).status_code == 200


@pytest.mark.parametrize("database_url", ["", "mysql://u:secret@h/d", "sqlite"])
def test_start_with_a_wrong_setting_ends_with_its_name(database_url: str) -> None:
    """The exit code is 2, and one line says what to change, without a traceback."""
    told = run_here("gateway", env={"HARNESS_DATABASE_URL": database_url, "HARNESS_REDIS_URL": NOWHERE})
    assert told.returncode == 2
    assert told.stderr.startswith("harness: HARNESS_DATABASE_URL")
    assert "Traceback" not in told.stderr
    assert "secret" not in told.stderr


def test_log_has_a_line_a_request_and_no_text_of_users(sqlite_url: str, gateway_redis: str, tmp_path: Path) -> None:
    """Each line has method, path, status and time, in ASCII; inputs, keys and queries are not logged."""
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE):
        pass
    log = tmp_path / "log"
    with gateway_process(sqlite_url, gateway_redis, log) as gateway:
        url = gateway.url
        headers = {"Authorization": "Bearer my-key"}
        httpx2.post(f"{url}/v1/turns", json={"agent": "support", "input": "my-text"}, headers=headers, timeout=30)
        httpx2.get(f"{url}/v1/turns", params={"metadata.a": "my-value"}, timeout=30)
        httpx2.get(f"{url}/v1/%C2%9B2J%E2%80%AE", timeout=30)
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
        assert httpx2.get(f"{gateway.url}/readyz", timeout=30).status_code == 503
        wait_until(lambda: "not ready" in log.read_text(), "the warning")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None
    said = {(line["level"], line["logger"]) for line in lines}
    assert said >= {("info", "uvicorn.error"), ("warning", "api_gateway.routes.health")}
