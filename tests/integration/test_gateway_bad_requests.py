"""Bad input of every kind: always a problem document that says what was wrong, never a 400, a 500 or a traceback."""

# ruff: noqa: ANN401 - columns, bodies and answers are any JSON
from __future__ import annotations

import gzip
import json
import shutil
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import AGENT, NOWHERE, Gateway, gateway_on, problem_of, statuses

GOOD = {"agent": AGENT, "input": "hello"}


@pytest.fixture(scope="module")
def gateway(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory, gateway_redis: str) -> Generator[Gateway]:
    """One gateway for the whole module, which accepts nothing in it."""
    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("gateway") / "harness.db")
    with gateway_on(f"sqlite:///{file}", gateway_redis, redis_url=NOWHERE, max_body_bytes=100_000) as running:
        yield running


def send(gateway: Gateway, content: bytes, content_type: str = "application/json") -> Any:
    """Post raw bytes."""
    return gateway.http.post("/v1/turns", content=content, headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"agent":' * 5_000,
        b'"text"',
        b"12",
        b'{"agent":"support","input":"x"} trailing',
        b'{"agent":"support","input":"\xff"}',
        '{"agent":"support","input":"x"}'.encode("utf-16"),
        b'{"agent":"support","input":"\\ud800"}',
        b'{"agent":"support","input":"\\udc00 tail"}',
        b'{"agent":"support","input":"x","budget":{"timeout_s":NaN}}',
        b'{"agent":"support","input":"x","budget":{"timeout_s":Infinity}}',
        b'{"agent":"support","input":"x","budget":{"timeout_s":1e400}}',
        b'{"agent":"support","input":"x","budget":{"max_steps":' + b"9" * 400 + b"}}",
        b'{"agent":"support","input":"x","budget":{"max_steps":' + b"9" * 5_000 + b"}}",
        b"agent=support&input=x",
    ],
    ids=lambda content: repr(content[:40]),
)
def test_body_that_is_no_json_object_is_422(gateway: Gateway, content: bytes) -> None:
    """Broken JSON, NaN, numbers out of range, broken text and deep nesting are refused, naming the body."""
    problem = problem_of(send(gateway, content), 422, "invalid_request")
    assert problem["errors"][0]["loc"][0] == "body"
    assert problem["errors"][0]["msg"]


@pytest.mark.parametrize(
    ("loc", "change"),
    [
        (["agent"], {"agent": None}),
        (["agent"], {"agent": 3}),
        (["agent"], {"agent": "a\0"}),
        (["input"], {"input": ["x"]}),
        (["input"], {"input": {"text": "x"}}),
        (["input"], {"input": "a\0b"}),
        (["surprise"], {"surprise": 1}),
        (["webhook"], {"webhook": "http://localhost/told"}),
        (["session_id"], {"session_id": 5}),
        (["session_id"], {"session_id": ""}),
        (["session_id"], {"session_id": "s" * 256}),
        (["session_id"], {"session_id": "s\0"}),
        (["budget"], {"budget": []}),
        (["budget", "max_steps"], {"budget": {"max_steps": -1}}),
        (["budget", "max_steps"], {"budget": {"max_steps": 1.5}}),
        (["budget", "max_steps"], {"budget": {"max_steps": "3"}}),
        (["budget", "max_steps"], {"budget": {"max_steps": True}}),
        (["budget", "max_dollars"], {"budget": {"max_dollars": -0.01}}),
        (["budget", "timeout_s"], {"budget": {"timeout_s": "9"}}),
        (["budget", "steps"], {"budget": {"steps": 1}}),
        (["metadata"], {"metadata": ["a"]}),
        (["metadata"], {"metadata": {str(number): "x" for number in range(17)}}),
        (["metadata", "a"], {"metadata": {"a": 1}}),
        (["metadata", "a"], {"metadata": {"a": None}}),
        (["metadata", "a"], {"metadata": {"a": "x" * 513}}),
        (["metadata", "a"], {"metadata": {"a": "\0"}}),
        (["metadata"], {"metadata": {"\0": "x"}}),
        (["metadata"], {"metadata": {"k" * 513: "x"}}),
        (["priority"], {"priority": "urgent"}),
        (["multitask"], {"multitask": "panic"}),
        (["parallel"], {"parallel": "yes"}),
        (["parallel"], {"parallel": 1}),
        (["system_prompt_override"], {"system_prompt_override": 1}),
        (["skill_context"], {"skill_context": "\0"}),
    ],
)
def test_field_of_the_wrong_kind_is_422_and_named(gateway: Gateway, loc: list[str], change: dict[str, Any]) -> None:
    """Each field is checked strictly, and the problem says which one is wrong."""
    response = gateway.http.post("/v1/turns", json={**GOOD, **change})
    problem = problem_of(response, 422, "invalid_request")
    assert problem["errors"][0]["loc"][: len(loc) + 1] == ["body", *loc]


def test_every_wrong_field_is_told_at_once(gateway: Gateway) -> None:
    """All wrong fields are named in one answer."""
    problem = problem_of(gateway.http.post("/v1/turns", json={"agent": 1, "x": 2}), 422, "invalid_request")
    assert {error["loc"][1] for error in problem["errors"]} == {"agent", "input", "x"}


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""])
def test_body_is_json_whatever_the_content_type(gateway: Gateway, content_type: str) -> None:
    """The body is parsed as JSON without regard to its content type."""
    assert send(gateway, json.dumps(GOOD).encode(), content_type).status_code == 202


def test_body_above_the_limit_is_413(gateway: Gateway) -> None:
    """A body of the limit's size is read; one byte more is too large, with ``Content-Length`` or without."""
    empty = json.dumps({**GOOD, "input": ""}).encode()
    fits = json.dumps({**GOOD, "input": "x" * (100_000 - len(empty))}).encode()
    assert len(fits) == 100_000
    assert send(gateway, fits).status_code == 202
    problem_of(send(gateway, fits + b" "), 413, "payload_too_large")
    problem_of(send(gateway, b" " * 900_000), 413, "payload_too_large")
    chunked = gateway.http.post("/v1/turns", content=iter([b" " * 60_000] * 10))
    problem_of(chunked, 413, "payload_too_large")


def test_body_that_is_encoded_is_422(gateway: Gateway) -> None:
    """The problem names the encoding; ``identity`` is accepted."""
    plain = json.dumps(GOOD).encode()
    encoded = gateway.http.post("/v1/turns", content=gzip.compress(plain), headers={"Content-Encoding": "gzip"})
    problem = problem_of(encoded, 422, "invalid_request")
    assert problem["errors"][0]["loc"] == ["header", "Content-Encoding"]
    assert gateway.http.post("/v1/turns", content=plain, headers={"Content-Encoding": "Identity"}).status_code == 202


@pytest.fixture
def hurried(sqlite_url: str, gateway_redis: str) -> Generator[Gateway]:
    """A gateway that waits only briefly for the rest of a body."""
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE, body_idle_s=0.3) as running:
        yield running


def test_body_that_stops_coming_is_408(hurried: Gateway) -> None:
    """The gateway does not wait for ever for the rest, and closes the connection."""
    with posting(hurried, b"{") as client:
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert json.loads(body)["code"] == "body_too_slow"


def test_body_that_comes_byte_by_byte_is_408(hurried: Gateway) -> None:
    """A client that keeps sending, but very slowly, cannot hold its connection for ever either."""
    with posting(hurried, b"{", content_bytes=100_000) as client:
        client.settimeout(0.05)
        answer = b""
        give_up_at = time.monotonic() + 30
        while not answer and time.monotonic() < give_up_at:
            with suppress(ConnectionError):  # the gateway may have left since
                client.sendall(b" ")
            with suppress(TimeoutError):
                answer = client.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 408")


def test_client_that_leaves_amid_its_body_hurts_nobody(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """It is not logged as an error."""
    caplog.set_level("INFO", "api_gateway.access")
    with posting(gateway, b"{"):
        pass
    wait_until(lambda: 408 in statuses(caplog), "the gateway to see that the client left")
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


@contextmanager
def posting(gateway: Gateway, body: bytes, content_bytes: int = 99) -> Generator[socket.socket]:
    """A client that has sent the beginning of a longer body."""
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as client:
        head = f"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Length: {content_bytes}\r\n\r\n"
        client.sendall(head.encode() + body)
        yield client


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_idempotency_key_of_a_wrong_length_is_422(gateway: Gateway, key: str) -> None:
    """A key has 1 to 255 characters."""
    response = gateway.http.post("/v1/turns", json=GOOD, headers={"Idempotency-Key": key})
    assert problem_of(response, 422, "invalid_request")["errors"][0]["loc"] == ["header", "Idempotency-Key"]


@pytest.mark.parametrize(
    "query",
    [
        *(
            "limit=0",
            "limit=201",
            "limit=abc",
            "limit=-1",
            "limit=1.0",
            "limit=",
            "limit=%EF%BC%91",
            "limit=" + "9" * 9_000,
        ),
        *("status=done", "status=", "surprise=1", "after=", "after=abc", "after=bnVsbA", "after=W10", "after=%00"),
        *(
            "after=WzFlOTk5LCJ4Il0",
            "agent=%00",
            "session_id=a%00",
            "metadata=1",
            "metadata.a=%00",
            "metadata.a=1&metadata.a=2",
            "&".join(f"metadata.{number}=x" for number in range(1_100)),
            "limit=1&limit=2",
            "agent=a&agent=a",
        ),
    ],
)
def test_list_query_that_makes_no_sense_is_422(gateway: Gateway, query: str) -> None:
    """Limits out of range, unknown parameters, unknown statuses and cursors nobody gave are refused."""
    problem = problem_of(gateway.http.get(f"/v1/turns?{query}"), 422, "invalid_request")
    assert problem["errors"][0]["loc"][0] == "query"


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/usage"])
def test_each_parameter_of_a_query_that_is_wrong_is_named(gateway: Gateway, path: str) -> None:
    """Unknown parameters and wrong values are reported together, one entry each."""
    query = "limit=0&foo=1&bar=2&metadata.b=%00&metadata.c=fine"
    problem = problem_of(gateway.http.get(f"{path}?{query}"), 422, "invalid_request")
    wrong = ["limit", "foo", "bar", "metadata.b"]
    assert [error["loc"] for error in problem["errors"]] == [["query", name] for name in wrong]


@pytest.mark.parametrize(
    ("path", "query"),
    [
        *(("/events", query) for query in ("after=-1", "after=x", "after=1.5", "limit=0", "limit=1001", "x=1")),
        *(("", query) for query in ("include=all", "include=", "x=1")),
    ],
)
def test_turn_query_that_makes_no_sense_is_422(gateway: Gateway, path: str, query: str) -> None:
    """Query parameters of one turn are checked as strictly as those of the list."""
    turn_id = gateway.posted()["id"]
    problem = problem_of(gateway.http.get(f"/v1/turns/{turn_id}{path}?{query}"), 422, "invalid_request")
    assert "pattern" not in problem["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/turns", GOOD),
        ("/v1/turns/{turn_id}/inputs", {"message": "hi"}),
        ("/v1/turns/{turn_id}/cancel", {}),
        ("/v1/responses", {"model": AGENT, "input": "hello"}),
        ("/v1/chat/completions", {"model": AGENT, "messages": [{"role": "user", "content": "hello"}]}),
    ],
)
def test_post_with_a_query_is_422(gateway: Gateway, path: str, body: dict[str, Any]) -> None:
    """No POST has query parameters, so one must not be ignored silently; nothing is made."""
    turn_id = gateway.posted()["id"]
    response = gateway.http.post(f"{path.format(turn_id=turn_id)}?wait=20", json=body)
    assert (response.status_code, "query.wait: unknown field" in response.text) == (422, True), response.text
    assert gateway.ids(limit=1) == [turn_id]


@pytest.mark.parametrize("after", ["9" * 19, "9" * 30, "9" * 9_000])
def test_events_after_a_huge_seq_are_none(gateway: Gateway, after: str) -> None:
    """A number greater than any row's is valid, and gives no events."""
    turn_id = gateway.posted()["id"]
    response = gateway.http.get(f"/v1/turns/{turn_id}/events?after={after}")
    assert response.json() == {"data": [], "next": None}


@pytest.mark.parametrize("turn_id", ["nope", "%00", "%ff", "a" * 5_000, "..%2f", "%F0%9F%98%80", "'; drop table turns"])
@pytest.mark.parametrize(
    ("method", "tail"), [("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/inputs"), ("GET", "/x")]
)
def test_turn_that_does_not_exist_is_404(gateway: Gateway, turn_id: str, method: str, tail: str) -> None:
    """This holds for every request about a turn."""
    response = gateway.http.request(method, f"/v1/turns/{turn_id}{tail}", json={"message": "hi"})
    problem_of(response, 404, "not_found")


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/turns/", "/v2/turns", "/v1/agents/", "/v1/sessions/", "/healthz/", "//v1/turns"]
)
def test_unknown_route_is_404(gateway: Gateway, path: str) -> None:
    """Paths must match exactly, and nothing redirects."""
    problem = problem_of(gateway.http.get(gateway.url + path), 404, "not_found")
    assert problem["detail"] == f"there is nothing at {path}; see /docs for what there is"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/turns", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/turns", "GET, HEAD, POST"),
        ("PUT", "/v1/turns/x", "GET, HEAD"),
        ("GET", "/v1/turns/x/cancel", "POST"),
        ("HEAD", "/v1/turns/x/cancel", "POST"),
        ("POST", "/v1/agents", "GET, HEAD"),
        ("TRACE", "/healthz", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_method_that_is_not_offered_is_405_with_allow(gateway: Gateway, method: str, path: str, allowed: str) -> None:
    """``Allow`` names every method of the path."""
    response = gateway.http.request(method, path)
    assert response.headers["allow"] == allowed
    if method != "HEAD":
        problem_of(response, 405, "method_not_allowed")


def test_head_is_get_without_its_body(gateway: Gateway) -> None:
    """HEAD has GET's status and headers."""
    response = gateway.http.head("/v1/turns")
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["content-length"]) > 0
    assert gateway.http.head("/v1/turns/nope").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "approve"},
        {"decision": "maybe", "call_id": "0.0"},
        {"decision": "approve", "call_id": "0.0", "message": "x"},
        {"message": "x", "reason": "y"},
        {"message": 1},
        {"message": ""},
        {"decision": "approve", "call_id": "0.0", "arguments": []},
        {"decision": "deny", "call_id": "0.0", "arguments": {}},
        {"decision": "approve", "call_id": "0.0", "arguments": {"x": ["\x00"]}},
        {"message": "x", "surprise": 1},
    ],
)
def test_input_that_is_neither_decision_nor_message_is_422(gateway: Gateway, body: dict[str, Any]) -> None:
    """An input has either a decision or a message, and no field that does not belong to it."""
    turn_id = gateway.posted()["id"]
    problem_of(gateway.http.post(f"/v1/turns/{turn_id}/inputs", json=body), 422, "invalid_request")


def test_bytes_that_are_no_http_do_not_stop_the_server(gateway: Gateway) -> None:
    """Other clients are still served."""
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        raw.recv(1_000)
    assert gateway.http.get("/healthz").status_code == 200
