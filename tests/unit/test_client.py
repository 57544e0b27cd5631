"""The gateway client, against transports that answer as the gateway does; no network."""

from __future__ import annotations

import json

import httpx2
import pytest

from api_gateway.config import load_settings
from harness_worker.client.client import GatewayClient, RequestRefused, StackUnreachable
from harness_worker.errors import ConfigError


def _client(answer: httpx2.Response, seen: list[httpx2.Request] | None = None) -> GatewayClient:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(request)
        return answer

    return GatewayClient("http://gateway/", "key-1", transport=httpx2.MockTransport(handle))


def test_client_create_turn_sends_headers_and_body() -> None:
    """A turn is posted with its key, its idempotency key and how long the gateway may wait."""
    seen: list[httpx2.Request] = []
    with _client(httpx2.Response(202, json={"id": "t1"}), seen) as client:
        turn = client.create_turn({"agent": "a", "input": "hi"}, wait_s=20, idempotency_key="k")
    assert turn == {"id": "t1"}
    assert seen[0].url == "http://gateway/v1/turns"
    assert json.loads(seen[0].content) == {"agent": "a", "input": "hi"}
    expected = {"prefer": "wait=20", "idempotency-key": "k", "authorization": "Bearer key-1"}
    assert {name: seen[0].headers[name] for name in expected} == expected


def test_client_all_events_follows_pages() -> None:
    """Events are read to the end, however many pages they take."""
    pages = {"0": {"data": [{"seq": 1}], "next": 1}, "1": {"data": [{"seq": 2}], "next": None}}

    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=pages[request.url.params["after"]])

    client = GatewayClient("http://gateway", transport=httpx2.MockTransport(handle))
    assert [event["seq"] for event in client.all_events("t1")] == [1, 2]


def test_client_waits_for_a_live_event_longer_than_for_any_heartbeat() -> None:
    """A stream that is only idle is not taken for dead, however seldom its gateway is set to send heartbeats."""
    seen: list[httpx2.Request] = []
    stream = httpx2.Response(200, headers={"content-type": "text/event-stream"})
    with _client(stream, seen) as client:
        assert list(client.live_events("t1")) == []
    too_long_s = seen[0].extensions["timeout"]["read"] - 10
    with pytest.raises(ConfigError, match="HARNESS_SSE_HEARTBEAT_S"):
        load_settings(sse_heartbeat_s=too_long_s)


def test_client_refusal_carries_the_problem() -> None:
    """A problem document becomes an error with its status and code, and says once what is wrong where."""
    errors = [{"loc": ["input"], "msg": "must be a string"}, {"loc": ["tags", 0], "msg": "too long"}]
    detail = "input: must be a string; tags.0: too long"
    problem = {"status": 422, "code": "invalid_request", "detail": detail, "title": "Invalid", "errors": errors}
    with pytest.raises(RequestRefused) as refused:
        _client(httpx2.Response(422, json=problem)).create_turn({})
    assert (refused.value.status, refused.value.code) == (422, "invalid_request")
    assert str(refused.value) == "input: must be a string\n  tags.0: too long (422 invalid_request)"


@pytest.mark.parametrize(
    ("key", "said"), [(None, "asks for an API key"), ("key-1", "refuses the key in HARNESS_API_KEY")]
)
def test_client_that_is_not_let_in_is_told_what_to_set(key: str | None, said: str) -> None:
    """Whoever uses the command line sets no headers, of which the gateway speaks; the key is not shown."""
    problem = {
        "status": 401,
        "code": "unauthorized",
        "detail": "send Authorization: Bearer KEY",
        "title": "Unauthorized",
    }
    transport = httpx2.MockTransport(lambda _: httpx2.Response(401, json=problem))
    with GatewayClient("http://u:s3cret@gateway", key, transport=transport) as client:
        with pytest.raises(RequestRefused, match=f"{said}.*Set HARNESS_API_KEY to one") as refused:
            client.turns()
        with pytest.raises(RequestRefused, match=said):
            list(client.live_events("t1"))
    assert refused.value.code == "unauthorized"
    assert not any(secret in str(refused.value) for secret in ("key-1", "s3cret"))


def test_client_sends_its_key_whoever_the_address_names() -> None:
    """There is one header for both, and the key is what the gateway looks at."""
    seen: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={})

    for key in ("key-1", None):
        with GatewayClient("http://u:s3cret@gateway", key, transport=httpx2.MockTransport(handle)) as client:
            client.turns()
    assert [request.headers["authorization"].split()[0] for request in seen] == ["Bearer", "Basic"]


def test_client_shows_no_password_of_the_address() -> None:
    """Whether nothing answers there, or something else than the gateway."""
    with pytest.raises(StackUnreachable, match=r"http://u:\*\*\*@127.0.0.1:1 ") as away:
        GatewayClient("http://u:s3cret@127.0.0.1:1").turns()
    other = httpx2.MockTransport(lambda _: httpx2.Response(502, content=b"<html>"))
    with pytest.raises(RequestRefused, match="is it the gateway") as refused:
        GatewayClient("http://u:s3cret@gateway", transport=other).turns()
    assert "s3cret" not in f"{away.value} {refused.value}"


def test_client_says_how_to_start_a_stack_where_it_asked() -> None:
    """A stack listens on this machine alone: there, on the port that was asked; elsewhere it is no advice."""
    with pytest.raises(StackUnreachable) as near:
        GatewayClient("http://127.0.0.1:1").turns()
    assert "\n  harness up --app package.module:registry --port 1\n" in str(near.value)

    def fail(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with pytest.raises(StackUnreachable) as far:
        GatewayClient("https://gateway.example", transport=httpx2.MockTransport(fail)).turns()
    assert "harness up" not in str(far.value)
    assert "--url or HARNESS_GATEWAY_URL" in str(far.value)


def test_client_names_an_error_that_has_no_words() -> None:
    """The message of a connection that broke says at least of which kind the error was."""

    def fail(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("")

    with pytest.raises(StackUnreachable, match=r"nothing answers at http://gateway \(ReadError\)"):
        GatewayClient("http://gateway", transport=httpx2.MockTransport(fail)).turns()


@pytest.mark.parametrize(
    "url",
    ["gateway", "http://", "http://[::1", "http://u:hid/den@h", "http://h\nx", "http://..", "http://127.0.0.1:99999"],
)
def test_client_refuses_what_is_no_address(url: str) -> None:
    """A slip in an option is told at once, with what to give and without its password."""
    with pytest.raises(ConfigError, match=r"no address of a gateway: give http://HOST:PORT with --url") as refused:
        GatewayClient(url)
    assert "hid" not in str(refused.value)


@pytest.mark.parametrize("status", [200, 502])
@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"[[]]"])
def test_client_answer_of_another_server_is_told(status: int, body: bytes) -> None:
    """An answer that is not the gateway's says so instead of failing to parse."""
    request = httpx2.Request("GET", "http://gateway/v1/agents")
    for ask in (GatewayClient.agents, GatewayClient.ready):
        with pytest.raises(RequestRefused, match="is it the gateway"):
            ask(_client(httpx2.Response(status, content=body, request=request)))


def test_client_no_connection_says_how_to_start() -> None:
    """When nothing listens, the message names the address and the command that starts a stack."""
    with GatewayClient("http://127.0.0.1:9") as client, pytest.raises(StackUnreachable) as broken:
        client.ready()
    assert "http://127.0.0.1:9" in str(broken.value)
    assert "harness up --app" in str(broken.value)


def test_client_ready_is_false_while_the_gateway_says_no() -> None:
    """A 503 of /readyz is an answer, not an error."""
    problem = {"status": 503, "code": "not_ready", "title": "Not ready", "detail": "no broker"}
    assert _client(httpx2.Response(503, json=problem)).ready() is False
