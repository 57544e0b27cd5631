"""A receiver of webhooks as its owner would write one: a small HTTP server, which answers as a test wants."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from standardwebhooks import Webhook

from harness_worker.credentials import tenant_webhook_secret
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import DEFAULT_TENANT

SECRET = "the-operators-own-secret-for-tests"  # noqa: S105 - nobody's
Answering: TypeAlias = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """What it is known by."""
        return self.headers["webhook-id"]

    def verified(self, tenant: str = DEFAULT_TENANT, secret: str = SECRET) -> Any:  # noqa: ANN401 - any JSON
        """What it says, if the library for receivers takes it for genuine."""
        return self.genuine(tenant_webhook_secret(secret, tenant))

    def genuine(self, secret: str) -> Any:  # noqa: ANN401 - any JSON
        """The same, with the secret that a receiver was given."""
        return Webhook(secret).verify(self.body, dict(self.headers))


class Receiver:
    """Takes down what it is sent, and answers as it is told, then with 204.

    Args:
        port: Where it listens.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/told"
        self.named_url = f"http://localhost:{port}/told"
        self.received: list[Received] = []
        self.answers: deque[Answering] = deque()
        self.released = threading.Event()

    def await_count(self, count: int, timeout_s: float = 20.0) -> list[Received]:
        """The requests once there are so many."""
        wait_until(lambda: len(self.received) >= count, f"{count} requests, not {len(self.received)}", timeout_s)
        return list(self.received)

    def hang(self, _handler: BaseHTTPRequestHandler) -> None:
        """Answer nothing until the test is over."""
        self.released.wait()


def answer(status: int, body: bytes = b"", **headers: str) -> Answering:
    """An answer with this status."""

    def give(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return give


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that leave."""


@contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Generator[Receiver]:
    """A receiver on a free port of this machine, behind TLS if that is given."""
    server = _Server(("127.0.0.1", 0), BaseHTTPRequestHandler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    found = Receiver(server.server_address[1])
    server.RequestHandlerClass = _handler_of(found)
    thread = threading.Thread(target=server.serve_forever, name="receiver", kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def _handler_of(found: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.received.append(Received(path=self.path, headers=headers, body=body))
            answering = found.answers.popleft() if found.answers else answer(204)
            with suppress(OSError):  # who asked may be gone
                answering(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own signature
            """Say nothing."""

    return Handler
