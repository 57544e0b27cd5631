"""The gateway client, against transports that answer as the gateway does; no network."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from copy import copy
from typing import Any

import httpx2
import pytest

from api_gateway.config import load_settings
from api_gateway.use_cases.waiting import wait_of
from harness_worker.client.client import TIMEOUT_S, GatewayClient, RequestRefused, StackUnreachable
from harness_worker.errors import ConfigError


def _client(answer: httpx2.Response, seen: list[httpx2.Request] | None = None) -> GatewayClient:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(request)
        return answer

    return GatewayClient("http://gateway/", "key-1", patience_s=0, transport=httpx2.MockTransport(handle))


def test_client_create_turn_sends_headers_and_body() -> None:
    """A turn is posted with its key, its idempotency key and how long the gateway may wait."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(202, json={"id": "t1"}), seen) as client:
        turn = client.create_turn("a", "hi", wait_s=20, idempotency_key="k", session_id=None)
    assert turn == {"id": "t1"}
    assert seen[0].url == "http://gateway/v1/turns"
    assert json.loads(seen[0].content) == {"agent": "a", "input": "hi"}
    expected = {"prefer": "wait=20", "idempotency-key": "k", "authorization": "Bearer key-1"}
    assert {name: seen[0].headers[name] for name in expected} == expected


@pytest.mark.parametrize("wait_s", [60, 86_400.0, 1e7, math.inf])
def test_client_asks_the_gateway_to_wait_as_long_as_it_may(wait_s: float) -> None:
    """A longer wait is the longest, for which alone the client bears with a gateway that says nothing."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(202, json={"id": "t1"}), seen) as client:
        client.create_turn("a", "hi", wait_s=wait_s)
        client.fork_turn("t1", 0, wait_s=wait_s)
    for request in seen:
        assert wait_of([request.headers["prefer"]]) == 60
        assert request.extensions["timeout"]["read"] == 60 + TIMEOUT_S


def test_client_recorded_events_follow_pages() -> None:
    """Events are read to the end, however many pages they take."""
    pages = {"0": {"data": [{"seq": 1}], "next": 1}, "1": {"data": [{"seq": 2}], "next": None}}

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=pages[request.url.params["after"]])

    client = GatewayClient("http://gateway", transport=httpx2.MockTransport(handle))
    assert [event["seq"] for event in client.events("t1", follow=False)] == [1, 2]


def test_client_waits_for_a_live_event_longer_than_for_any_heartbeat() -> None:
    """A stream that is only idle is not taken for dead, however seldom its gateway is set to send heartbeats."""
    seen: list[httpx2.Request] = []
    end: dict[str, Any] = {"seq": 1, "type": "turn.completed", "data": {}}
    headers = {"content-type": "text/event-stream"}
    with _client(httpx2.Response(200, headers=headers, text=f"data: {json.dumps(end)}\n\n"), seen) as client:
        assert list(client.events("t1")) == [end]
    too_long_s = seen[0].extensions["timeout"]["read"] - 10
    with pytest.raises(ConfigError, match="HARNESS_SSE_HEARTBEAT_S"):
        load_settings(sse_heartbeat_s=too_long_s)


def test_client_refusal_carries_the_problem() -> None:
    """A problem document becomes an error with its status and code, and says once what is wrong where."""
    errors = [{"loc": ["input"], "msg": "must be a string"}, {"loc": ["tags", 0], "msg": "too long"}]
    detail = "input: must be a string; tags.0: too long"
    problem = {"status": 422, "code": "invalid_request", "detail": detail, "title": "Invalid", "errors": errors}
    with pytest.raises(RequestRefused) as refused:
        _client(httpx2.Response(422, json=problem)).create_turn("a", "hi")
    assert (refused.value.status, refused.value.code) == (422, "invalid_request")
    assert str(refused.value) == "input: must be a string\n  tags.0: too long (422 invalid_request)"


@pytest.mark.parametrize(("key", "said"), [("", "asks for an API key"), ("key-1", "refuses the API key")])
def test_client_that_is_not_let_in_is_told_what_to_set(key: str, said: str) -> None:
    """Whoever calls in Python or on the command line sets no headers, of which the gateway speaks; no key is shown."""
    problem = {
        "status": 401,
        "code": "unauthorized",
        "detail": "send Authorization: Bearer KEY",
        "title": "Unauthorized",
    }
    transport = httpx2.MockTransport(lambda _: httpx2.Response(401, json=problem))
    with GatewayClient("http://u:s3cret@gateway", key, transport=transport) as client:
        with pytest.raises(RequestRefused, match=f"{said}.*Set HARNESS_API_KEY or api_key to one") as refused:
            client.agents()
        with pytest.raises(RequestRefused, match=said):
            list(client.events("t1"))
    assert refused.value.code == "unauthorized"
    assert not any(secret in str(refused.value) for secret in ("key-1", "s3cret"))


def test_client_sends_its_key_whoever_the_address_names() -> None:
    """There is one header for both, and the key is what the gateway looks at."""
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={"data": []})

    for key in ("key-1", ""):
        with GatewayClient("http://u:s3cret@gateway", key, transport=httpx2.MockTransport(handle)) as client:
            client.agents()
    assert [request.headers["authorization"].split()[0] for request in seen] == ["Bearer", "Basic"]


def test_client_shows_no_password_of_the_address() -> None:
    """Whether nothing answers there, or something else than the gateway."""
    with pytest.raises(StackUnreachable, match=r"http://u:\*\*\*@127.0.0.1:1 ") as away:
        GatewayClient("http://u:s3cret@127.0.0.1:1", patience_s=0).agents()
    other = httpx2.MockTransport(lambda _: httpx2.Response(502, content=b"<html>"))
    with pytest.raises(RequestRefused, match="is it the gateway") as refused:
        GatewayClient("http://u:s3cret@gateway", patience_s=0, transport=other).agents()
    assert "s3cret" not in f"{away.value} {refused.value}"


def test_client_says_how_to_start_a_stack_where_it_asked() -> None:
    """A stack listens on this machine alone: there, on the port that was asked; elsewhere it is no advice."""
    with pytest.raises(StackUnreachable) as near:
        GatewayClient("http://127.0.0.1:1", patience_s=0).agents()
    assert "\n  harness up --app package.module:registry --port 1\n" in str(near.value)

    def fail(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with pytest.raises(StackUnreachable) as far:
        GatewayClient("https://gateway.example", patience_s=0, transport=httpx2.MockTransport(fail)).agents()
    assert "harness up" not in str(far.value)
    assert "base_url, --url or HARNESS_GATEWAY_URL" in str(far.value)


def test_client_names_an_error_that_has_no_words() -> None:
    """The message of a connection that broke says at least of which kind the error was."""

    def fail(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("")

    with pytest.raises(StackUnreachable, match=r"nothing answers at http://gateway \(ReadError\)"):
        GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(fail)).agents()


@pytest.mark.parametrize(
    "url",
    [
        "gateway",
        "http://",
        "http://[::1",
        "http://u:hid/den@h",
        "http://h\nx",
        "http://..",
        "http://127.0.0.1:99999",
        "http://gateway ",
        "http://gateway?tenant=a",
        "http://gateway/#v1",
    ],
)
def test_client_refuses_what_is_no_address(url: str) -> None:
    """A slip in an option is told at once, with what to give and without its password."""
    with pytest.raises(
        ConfigError, match=r"no address of a gateway: give http://HOST:PORT with base_url, --url"
    ) as refused:
        GatewayClient(url)
    assert "hid" not in str(refused.value)


@pytest.mark.parametrize("timeout_s", [math.inf, math.nan, 1e7, 0, -1])
def test_client_refuses_a_time_that_no_socket_waits(timeout_s: float) -> None:
    """Otherwise each request would fail, with an error of the system's."""
    with pytest.raises(ConfigError, match=rf"^timeout_s must be seconds above 0 .*, not {timeout_s}$"):
        GatewayClient("http://gateway", timeout_s=timeout_s)


@pytest.mark.parametrize("status", [200, 502])
@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"[[]]"])
def test_client_answer_of_another_server_is_told(status: int, body: bytes) -> None:
    """An answer that is not the gateway's says so instead of failing to parse."""
    request = httpx2.Request("GET", "http://gateway/v1/agents")
    for ask in (GatewayClient.agents, GatewayClient.ready):
        with pytest.raises(RequestRefused, match="is it the gateway"):
            ask(_client(httpx2.Response(status, content=body, request=request)))


ASKED: dict[str, Callable[[GatewayClient], object]] = {
    "turn": lambda client: client.turn("t1"),
    "create_turn": lambda client: client.create_turn("a", "hi"),
    "wait": lambda client: client.wait("t1", 0),
    "wait_batch": lambda client: client.wait_batch("b1", 0),
    "events": lambda client: list(client.events("t1")),
    "recorded events": lambda client: list(client.events("t1", follow=False)),
    "turns": lambda client: list(client.turns()),
    "agents": GatewayClient.agents,
    "artifact": lambda client: client.artifact("art_1"),
    "batch_results": lambda client: list(client.batch_results("b1")),
}


@pytest.mark.parametrize("body", [b'{"message": "welcome"}', b"[1]", b"<html>"])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_client_tells_another_server_that_has_the_path(ask: Callable[[GatewayClient], object], body: bytes) -> None:
    """What is no turn, batch or list is not handed on as one."""
    with pytest.raises(RequestRefused, match="is it the gateway") as refused:
        ask(_client(httpx2.Response(200, content=body)))
    assert (refused.value.status, refused.value.code) == (200, "unexpected_answer")


@pytest.mark.parametrize("data", ["hello", "[]", '{"seq": 1}'])
def test_client_tells_a_stream_of_something_else(data: str) -> None:
    """Other servers stream too."""
    stream = httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=f"data: {data}\n\n")
    with pytest.raises(RequestRefused, match="is it the gateway"):
        list(_client(stream).events("t1"))


def test_client_says_that_its_address_ends_in_a_path_of_the_gateway() -> None:
    """As that of OpenAI's clients does; a proxy may serve the gateway there, so nothing is refused unasked."""
    nothing = {"code": "not_found", "title": "Not Found", "detail": "there is nothing at /v1/v1/turns"}
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(404, json=nothing))
    for url, told in (("http://gateway/v1/", True), ("http://gateway/harness", False)):
        with pytest.raises(RequestRefused) as refused:
            GatewayClient(url, transport=transport).turns_page()
        assert ("the gateway's address ends before /v1" in str(refused.value)) is told


def test_client_says_where_it_is_sent_instead() -> None:
    """A redirect is not followed, for a key is for one address; most often it says https."""
    moved = httpx2.Response(308, headers={"location": "https://u:s3cret@gateway/v1/turns"})
    with pytest.raises(RequestRefused, match=r"answered 308 and points to https://u:\*\*\*@gateway/v1/turns: give"):
        _client(moved).create_turn("a", "hi")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"code": ["x"], "title": "x"}'])
def test_client_refusal_of_another_server_is_told(body: bytes) -> None:
    """Whatever it answers."""
    with pytest.raises(RequestRefused):
        _client(httpx2.Response(429, content=body)).turn("t1")


def test_client_no_connection_says_how_to_start() -> None:
    """When nothing listens, the message names the address and the command that starts a stack."""
    with GatewayClient("http://127.0.0.1:9") as client, pytest.raises(StackUnreachable) as broken:
        client.ready()
    assert "http://127.0.0.1:9" in str(broken.value)
    assert "harness up --app" in str(broken.value)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_client_does_not_blame_the_environment_for_a_shortage(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that it names is wrong; the same may work a moment later."""
    short = OSError(number, os.strerror(number))

    def cannot() -> None:
        raise short

    monkeypatch.setattr("harness_worker.client.http.httpx2.create_ssl_context", cannot)
    with pytest.raises(OSError, match=os.strerror(number)) as told:
        GatewayClient("https://gateway")
    assert told.value is short


def test_client_ready_is_false_while_the_gateway_says_no() -> None:
    """A 503 of /readyz is an answer, not an error."""
    problem = {"status": 503, "code": "not_ready", "title": "Not ready", "detail": "no broker"}
    assert _client(httpx2.Response(503, json=problem)).ready() is False


def test_client_errors_can_be_handed_to_another_process() -> None:
    """A pool of processes makes them anew from what they were made of."""
    refused = RequestRefused(429, "queue_full", "too many", {"code": "queue_full"}, retry_after_s=7.0)
    for error in (refused, StackUnreachable("nothing answers", "refused")):
        again = copy(error)
        assert (str(again), vars(again)) == (str(error), vars(error))
    assert str(refused) == "too many (429 queue_full)"


def test_client_is_set_up_as_the_command_line_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same variables; what is given wins, an empty key is none, and an empty address is no address."""
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={"data": []})

    monkeypatch.delenv("HARNESS_GATEWAY_URL", raising=False)
    monkeypatch.setenv("HARNESS_API_KEY", "key-1\n")
    transport = httpx2.MockTransport(handle)
    GatewayClient(transport=transport).agents()
    monkeypatch.setenv("HARNESS_GATEWAY_URL", "http://gateway")
    for key in (None, "key-2", ""):
        GatewayClient(api_key=key, transport=transport).agents()
    assert [str(request.url) for request in seen] == ["http://127.0.0.1:8700/v1/agents"] + 3 * [
        "http://gateway/v1/agents"
    ]
    keys = [request.headers.get("authorization") for request in seen]
    assert keys == ["Bearer key-1", "Bearer key-1", "Bearer key-2", None]
    with pytest.raises(ConfigError, match="no address of a gateway"):
        GatewayClient("")
    with pytest.raises(ConfigError, match=r"HARNESS_API_KEY=\*\*\*: must be visible characters"):
        GatewayClient(api_key="ke y")


@pytest.mark.parametrize("key", ["", "ü", " k", "k" * 256, "a\nb"])
def test_client_refuses_a_key_that_no_header_holds(key: str) -> None:
    """Before anything is sent, and in words that say what to give."""
    with pytest.raises(ConfigError, match="idempotency_key: give 1 to 255 characters of ASCII"):
        _client(httpx2.Response(500)).create_turn("a", "hi", idempotency_key=key)


SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_client_names_the_span_of_its_caller() -> None:
    """With whatever makes turns; a span that no header holds is told before anything is sent."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(202, json={"id": "t1"}), seen) as client:
        client.create_turn("a", "hi", traceparent=SPAN)
        client.fork_turn("t1", 1, traceparent=SPAN)
        client.create_batch([], traceparent=SPAN)
        client.create_turn("a", "hi")
        with pytest.raises(ConfigError, match="traceparent: give 1 to 255 characters of ASCII"):
            client.create_turn("a", "hi", traceparent="a\r\nb")
    assert [request.headers.get("traceparent") for request in seen] == [SPAN, SPAN, SPAN, None]
    assert not any(b"traceparent" in request.content for request in seen)


def test_client_that_waits_longer_for_an_answer_does_not_for_a_connection() -> None:
    """That nothing is there is told as soon as to others."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(202, json={"id": "t1"}), seen) as client:
        client.create_turn("a", "hi", wait_s=60)
        client.create_batch([])
    timeouts = [request.extensions["timeout"] for request in seen]
    assert [(each["connect"], each["read"]) for each in timeouts] == [(30, 90), (30, 120)]


def test_client_that_was_closed_says_so() -> None:
    """Also one that shares its connections; it is the caller's mistake, and not tried again."""
    with GatewayClient("http://gateway") as client:
        other = client.with_patience()
    for ask in (client.agents, other.agents, lambda: list(other.events("t1"))):
        with pytest.raises(RuntimeError, match="the client has been closed"):
            ask()


def test_client_shows_its_address_and_no_secret() -> None:
    """In a log or a notebook."""
    assert repr(GatewayClient("http://u:s3cret@gateway", "key-1")) == "GatewayClient('http://u:***@gateway')"


def test_client_answers_a_call_with_what_is_said() -> None:
    """A decision names its call; what is not said is not sent."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(202, json={"id": "t/1"}), seen) as client:
        client.approve("t/1", "0.1", arguments={"cents": 5})
        client.deny("t/1", "0.2", reason="no")
        client.deny_all("t/1", "ask me first")
    assert [request.url.raw_path for request in seen] == [b"/v1/turns/t%2F1/inputs"] * 3
    assert [json.loads(request.content) for request in seen] == [
        {"call_id": "0.1", "decision": "approve", "arguments": {"cents": 5}},
        {"call_id": "0.2", "decision": "deny", "reason": "no"},
        {"message": "ask me first"},
    ]


def test_client_filters_by_metadata_and_period() -> None:
    """Names that are none in Python are spelt for the API, and what is left out is not sent."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(200, json={"data": [], "next": None}), seen) as client:
        assert list(client.turns(metadata={"customer": "1042"}, status=None)) == []
        client.usage(since="2026-01-01", by="day")
    assert [dict(request.url.params) for request in seen] == [
        {"limit": "200", "metadata.customer": "1042"},
        {"from": "2026-01-01", "by": "day"},
    ]
