"""How a gateway ends: those who wait are answered, and nothing in its log looks like a bug."""

from __future__ import annotations

import json
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import httpx2
import pytest

from harness_worker.testing.waiting import wait_until
from harness_worker.wire import turn_queue
from tests.integration.gateway_kit import NOWHERE, gateway_on, gateway_process, is_healthy, redis_at
from tests.relay import Relay


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
        with ThreadPoolExecutor(2) as pool, httpx2.Client(timeout=30) as idle:
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
    turns = httpx2.get(f"{url}/v1/turns", timeout=30).json()["data"]
    return turns[0]["id"] if turns else ""
