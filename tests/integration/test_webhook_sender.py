"""One request to a receiver: there is always a result in time, and forbidden addresses are never called."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from api_gateway.webhooks.addresses import CheckedBackend
from api_gateway.webhooks.rules import IN_FLIGHT, ReceiverAnswer
from api_gateway.webhooks.sender import Sender
from harness_worker.adapters.embedded.ports import free_port
from tests.integration.certificates import write_certificate
from tests.receiver import Receiver, answer, receiver

TIMEOUT_S = 3.0
PATIENT_S = 30.0
"""For those that answer: a machine under load is no receiver that hangs."""

HANGING_NAMES = """
import asyncio, socket, threading
from api_gateway.webhooks.sender import Sender

socket.getaddrinfo = lambda *args, **named: threading.Event().wait()

async def main():
    sender = Sender(allow_private=True, timeout_s=0.1)
    print((await sender.post("http://slow.example/", {}, b"")).error)
    await sender.close()

asyncio.run(main())
"""


NO_THREAD = """
import asyncio, threading
from api_gateway.webhooks.sender import Sender

def refuse(thread):
    raise {refusal}

async def main():
    threading.Thread.start = refuse
    await Sender(allow_private=True).post("http://slow.example/", {{}}, b"")

asyncio.run(main())
"""


def send(url: str, *, allow_private: bool = True, timeout_s: float = PATIENT_S) -> ReceiverAnswer:
    """The result of one request."""

    async def sent() -> ReceiverAnswer:
        sender = Sender(allow_private=allow_private, timeout_s=timeout_s)
        try:
            return await sender.post(url, {"webhook-id": "1"}, b'{"a":1}')
        finally:
            await sender.close()

    return asyncio.run(sent())


def error_of(answered: ReceiverAnswer) -> str:
    """Why there was no status."""
    assert answered.status_code is None
    assert answered.error is not None
    assert len(answered.error) <= 200
    return answered.error


def test_request_is_one_of_http(other: Receiver) -> None:
    """Its ``Host`` is that of the URL, and a header names the sender."""
    assert send(other.named_url) == ReceiverAnswer(status_code=204)
    (told,) = other.received
    assert told.body == b'{"a":1}'
    expected = {"content-type": "application/json", "user-agent": "agent-harness", "webhook-id": "1"}
    assert expected.items() <= told.headers.items()
    assert told.headers["host"] == other.named_url.split("/")[2]


def test_proxies_of_the_environment_are_not_used(other: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's address would not have been checked."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert send(other.url) == ReceiverAnswer(status_code=204)


@pytest.mark.parametrize("refusal", ["RuntimeError('no thread')", "MemoryError()"])
def test_own_shortage_is_not_the_receivers_failure(refusal: str) -> None:
    """It is raised, so that the event is delivered later, and none of its retries is used up."""
    command = [sys.executable, "-c", NO_THREAD.format(refusal=refusal)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENT_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(("api_gateway.webhooks.addresses.NoThread", "MemoryError"))


def test_own_shortage_is_known_where_a_name_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread does that, which hands over what it meets."""

    def short(*_: object, **__: object) -> list[tuple[object, ...]]:
        raise MemoryError

    monkeypatch.setattr("api_gateway.webhooks.addresses.socket.getaddrinfo", short)
    with pytest.raises(MemoryError):
        send("http://some.example/", timeout_s=TIMEOUT_S)


def test_redirect_is_not_followed(other: Receiver) -> None:
    """It counts as a failure."""
    other.answers.append(answer(302, Location=other.url))
    assert send(other.url) == ReceiverAnswer(status_code=302, error="answered 302")
    assert len(other.received) == 1


def test_busy_receiver_says_when_to_come_back(other: Receiver) -> None:
    """``Retry-After`` is heeded."""
    other.answers.append(answer(503, Retry_After="77"))
    assert send(other.url) == ReceiverAnswer(status_code=503, error="answered 503", retry_after_s=77.0)


def test_receiver_that_hangs_is_no_answer(other: Receiver) -> None:
    """There is one time limit for the whole attempt."""
    other.answers.append(other.hang)
    assert error_of(send(other.url, timeout_s=TIMEOUT_S)) == f"no answer within {TIMEOUT_S:g} s"


def test_head_that_drips_is_no_answer(other: Receiver) -> None:
    """The limit counts, even if bytes keep coming."""

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not other.released.wait(0.05):
            handler.wfile.write(b"x: y\r\n")

    other.answers.append(drip)
    assert error_of(send(other.url, timeout_s=TIMEOUT_S)) == f"no answer within {TIMEOUT_S:g} s"


def test_body_is_not_waited_for(other: Receiver) -> None:
    """The status alone is the result."""

    def stall(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx")
        other.released.wait(60)

    other.answers.append(stall)
    assert send(other.url) == ReceiverAnswer(status_code=200)


def test_body_that_breaks_off_is_not_missed(other: Receiver) -> None:
    """The receiver has said that it has the event, which is not sent again."""
    other.answers.append(lambda handler: handler.connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"))
    assert send(other.url) == ReceiverAnswer(status_code=200)


def test_head_that_came_in_time_has_its_body_all_the_same(other: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that comes only when the time of the attempt would be over does not make the delivery fail."""
    monkeypatch.setattr("api_gateway.webhooks.sender.READ_TIMEOUT_S", 600.0)

    def come_late(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n")
        other.released.wait(TIMEOUT_S + 1)
        handler.wfile.write(b"x")

    other.answers.append(come_late)
    assert send(other.url, timeout_s=TIMEOUT_S) == ReceiverAnswer(status_code=200)


def test_body_without_end_is_not_read(other: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed after a few bytes, however much time there is."""
    monkeypatch.setattr("api_gateway.webhooks.sender.READ_TIMEOUT_S", 600.0)
    was_cut = threading.Event()

    def pour(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            was_cut.set()

    other.answers.append(pour)
    assert send(other.url) == ReceiverAnswer(status_code=200)
    assert was_cut.wait(30)


@pytest.mark.parametrize("head", [b"\x00\xff\x1b[31mrubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", b""])
def test_what_is_no_answer_of_http_is_told_in_words(other: Receiver, head: bytes) -> None:
    """The words can be shown to users."""
    other.answers.append(lambda handler: handler.connection.sendall(head))
    assert error_of(send(other.url)).isprintable()


def test_nobody_there_is_told_in_words() -> None:
    """They say as much as is known."""
    assert "cannot connect" in error_of(send(f"http://127.0.0.1:{free_port()}/"))
    assert error_of(send("http://nobody.invalid/")) == "the host's name is not known"


@pytest.mark.parametrize(
    "url", ["http://localhost:{port}/", "http://127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/"]
)
def test_closed_address_is_not_even_connected_to(url: str) -> None:
    """This holds for every name or number that leads to such an address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(0.2)
        answered = send(url.format(port=listening.getsockname()[1]), allow_private=False)
        with pytest.raises(TimeoutError):
            listening.accept()
    assert error_of(answered) == "the host's address is not a public one"


def test_name_is_looked_at_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may resolve to another address later, so the address that is connected to is checked."""
    asked: list[str] = []

    def moved(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("api_gateway.webhooks.addresses.socket.getaddrinfo", moved)
    answered = send(f"http://moving.example:{free_port()}/", allow_private=False)
    assert error_of(answered) == "the host's address is not a public one"
    assert asked == ["moving.example"]


@pytest.mark.parametrize("is_silent", [False, True], ids=["refuses", "silent"])
def test_address_that_cannot_be_reached_is_passed_over(
    other: Receiver, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """The request goes to the next address of the host."""
    monkeypatch.setattr("api_gateway.webhooks.addresses.CONNECT_TIMEOUT_S", 2.0)
    port = urlsplit(other.url).port or 0

    def both(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr("api_gateway.webhooks.addresses.socket.getaddrinfo", both)
    with silent("127.0.0.2", port) if is_silent else nullcontext():
        assert send(f"http://two.example:{port}/") == ReceiverAnswer(status_code=204)


def test_address_that_lets_nobody_in_is_told_with_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting has a shorter limit than the whole attempt."""
    monkeypatch.setattr("api_gateway.webhooks.addresses.CONNECT_TIMEOUT_S", 0.2)
    with silent("127.0.0.1") as port:
        assert error_of(send(f"http://127.0.0.1:{port}/")) == "no connection within 0.2 s"


@contextmanager
def silent(address: str, port: int = 0) -> Generator[int]:
    """An address at which nobody connects: the queue of its server is full, so the kernel lets nobody in."""
    with ExitStack() as sockets:
        full = sockets.enter_context(closing(socket.create_server((address, port), backlog=0)))
        for _ in range(2):
            waiting = sockets.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def test_name_server_that_hangs_holds_up_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds however many attempts wait for it."""
    look_up, released, asked = socket.getaddrinfo, threading.Event(), threading.Semaphore(0)

    def slow(host: str, port: int, **named: int) -> object:
        if host == "slow.example":
            asked.release()
            released.wait(60)
        return look_up("127.0.0.1", port, **named)

    async def story(port: int) -> None:
        backend = CheckedBackend(allow_private=True)
        async with asyncio.timeout(60):
            tries = [asyncio.create_task(backend.connect_tcp("slow.example", port)) for _ in range(IN_FLIGHT)]
            for _ in tries:
                await asyncio.to_thread(asked.acquire)
            for each in tries:
                each.cancel()
            await (await backend.connect_tcp("quick.example", port)).aclose()

    monkeypatch.setattr("api_gateway.webhooks.addresses.socket.getaddrinfo", slow)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        try:
            asyncio.run(story(listening.getsockname()[1]))
        finally:
            released.set()


def test_name_server_that_hangs_does_not_keep_the_process() -> None:
    """The process can end while a name is being resolved."""
    done = subprocess.run([sys.executable, "-c", HANGING_NAMES], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("no answer within 0.1 s\n", "")


def test_tls_verifies_the_hosts_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to an address, but the certificate must be that of the URL's host."""
    certificate = write_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiver(context) as other:
        assert send(other.named_url.replace("http:", "https:")) == ReceiverAnswer(status_code=204)
        assert "certificate verify failed" in error_of(send(other.url.replace("http:", "https:")))
    monkeypatch.delenv("SSL_CERT_FILE")
    with receiver(context) as other:
        assert "certificate verify failed" in error_of(send(other.named_url.replace("http:", "https:")))
