"""``GatewayClient`` at gateways that want a key, have too much to do, are none, or are not there."""

from __future__ import annotations

import ssl
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from api_gateway.config import Settings
from harness_worker import GatewayClient, RequestRefused, StackUnreachable
from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.errors import HarnessError
from tests.environments import PASSWORD, UNUSABLE
from tests.integration.certificates import write_certificate
from tests.integration.gateway_kit import (
    AGENT,
    NOWHERE,
    Gateway,
    gateway_on,
    keys_on,
    new_key,
    serving,
)

UNKNOWN = "hk_" + "w" * 43


def told(ask: Callable[[], object]) -> str:
    """What a user reads who catches nothing."""
    try:
        ask()
    except HarnessError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("nothing was refused")


@contextmanager
def served(server: HTTPServer) -> Generator[str]:
    """The URL at which it serves."""
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def another_server(certificate: Path | None = None) -> Generator[str]:
    """Serves something else over HTTP, or HTTPS."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with served(server) as url:
        yield url if certificate is None else url.replace("http://", "https://")


class NotingClock(SystemClock):
    """Remembers how long it waited, in seconds."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        """Wait."""
        self.waits.append(seconds)
        super().wait(seconds)


def test_key_is_sent_or_asked_for(sqlite_url: str) -> None:
    """It belongs to one tenant, and to nobody else's turns; without one, or with a wrong one, it is said what to do."""
    with serving(Settings(database_url=sqlite_url, redis_url=NOWHERE)) as url, keys_on(sqlite_url) as keys:
        key, _ = new_key(keys, "acme")
        with GatewayClient(url, key) as client:
            assert list(client.turns()) == []
        for wrong, said in (("", "asks for an API key"), (UNKNOWN, "refuses the API key")):
            with GatewayClient(url, wrong) as client, pytest.raises(RequestRefused, match=said) as refused:
                client.create_turn(AGENT, "Hello")
            assert refused.value.code == "unauthorized"
            assert "Set HARNESS_API_KEY or api_key to one that `harness keys create` made" in str(refused.value)
            assert UNKNOWN not in str(refused.value)


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="1/2 seconds")
def test_post_that_is_too_early_is_made_at_the_named_time(gateway: Gateway) -> None:
    """A tenant may post one turn in two seconds: the client keeps to that."""
    clock = NotingClock()
    with GatewayClient(gateway.url) as client:
        patient = client.with_patience(clock=clock)
        ids: set[str] = set()
        while not clock.waits:  # the first two may be further apart by themselves
            ids.add(patient.create_turn(AGENT, "Hello")["id"])
        assert {turn["id"] for turn in client.turns()} == ids
    assert max(clock.waits) <= 2


@pytest.mark.usefixtures("uncounted")
@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(tenant_rate="1/day")
def test_post_that_is_too_early_is_refused_when_patience_ends(gateway: Gateway) -> None:
    """However long the gateway asks to wait."""
    with GatewayClient(gateway.url, patience_s=0.5) as client:
        client.create_turn(AGENT, "Hello")
        with pytest.raises(RequestRefused) as refused:
            client.create_turn(AGENT, "Hello")
    assert (refused.value.status, refused.value.code) == (429, "rate_limited")
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s > 3_600


def test_any_number_of_threads_may_share_a_client(sqlite_url: str, gateway_redis: str) -> None:
    """Each that follows a turn keeps a connection; others are served beside them."""
    with (
        gateway_on(sqlite_url, gateway_redis) as gateway,
        GatewayClient(gateway.url, patience_s=0, timeout_s=10) as client,
        ExitStack() as streams,
    ):
        turn = client.create_turn(AGENT, "Hello")
        for _ in range(120):
            events = client.events(turn["id"])
            streams.callback(events.close)
            assert next(events)["type"] == "turn.queued"
        assert client.turn(turn["id"])["status"] == "queued"


def test_wrong_addresses_are_told_without_the_library_below() -> None:
    """What answers is no gateway, or nothing answers: the user reads where, and what to do."""
    with another_server() as url, GatewayClient(url) as client:
        said = told(lambda: client.create_turn(AGENT, "Hello"))
    assert f"{url}/v1/turns answered 404 with something unexpected: is it the gateway?" in said
    nowhere = f"http://127.0.0.1:{free_port()}"
    with GatewayClient(nowhere, patience_s=0.5) as client:
        absent = told(lambda: client.create_turn(AGENT, "Hello"))
        with pytest.raises(StackUnreachable):
            list(client.events("1"))
    assert f"nothing answers at {nowhere}" in absent
    assert "base_url, --url or HARNESS_GATEWAY_URL" in absent
    for words in (said, absent):
        assert "httpcore2" not in words
        assert "During handling" not in words


def test_certificates_of_the_environment_are_trusted_on_this_machine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy before a local gateway may have one that its owner signed; others are refused."""
    certificate = write_certificate(tmp_path, "localhost")
    with another_server(certificate) as url:
        with GatewayClient(url, patience_s=0) as client, pytest.raises(StackUnreachable, match="CERTIFICATE_VERIFY"):
            client.create_turn(AGENT, "Hello")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with GatewayClient(url, patience_s=0) as client, pytest.raises(RequestRefused, match="answered 404"):
            client.create_turn(AGENT, "Hello")


FORKED = """
import os, sys
from harness_worker import GatewayClient
client = GatewayClient(sys.argv[1], patience_s=0)
client.agents()
child = os.fork()
client.agents()
if child:
    assert os.waitpid(child, 0)[1] == 0
    client.agents()
"""


def test_forked_process_has_connections_of_its_own() -> None:
    """On its parent's, each would get some of the other's answers."""
    ports: list[int] = []

    class Agents(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            ports.append(self.client_address[1])
            self.send_response(200)
            self.send_header("Content-Length", "12")
            self.end_headers()
            self.wfile.write(b'{"data": []}')

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            pass

    with served(ThreadingHTTPServer(("127.0.0.1", 0), Agents)) as url:
        subprocess.run([sys.executable, "-c", FORKED, url], check=True, timeout=60)
    assert len(ports) == 4
    assert len(set(ports)) == 2


@pytest.mark.parametrize(("name", "value"), UNUSABLE)
def test_environment_that_cannot_be_used_is_told(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the client is made, and without the password of a proxy."""
    monkeypatch.setenv(name, value)
    said = told(lambda: GatewayClient("https://gateway.example"))
    assert "no connection can be made with what the environment says" in said
    assert name in said
    assert PASSWORD not in said
