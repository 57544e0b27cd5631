"""A small server that answers ``POST /v1/messages`` as Anthropic does, and can fail in every way that Anthropic can.

It uses the standard library only; its answers are scripted with ``messages_replies``.
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, assert_never

from harness_worker.testing.messages_replies import Answer, Ending, Event, Refusal, Reply, Silence, events_of

LOOK_S: Final = 0.02
PATH: Final = "/v1/messages"
_EXHAUSTED: Final = Refusal(status=400, kind="invalid_request_error", message="the stub has no more answers")
_TOOLLESS: Final = Refusal(status=400, kind="invalid_request_error", message="calls in messages, and no tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that the stub received.

    Args:
        headers: By lower-case name.
        body: The parsed JSON.
        connection: The client's address, which is equal for requests over the same connection.
        sent: Set when a stream has reached its ending and everything before it was sent.
        left: Set when the client closed the connection before its answer was complete.
    """

    headers: Mapping[str, str]
    body: Mapping[str, Any]
    connection: tuple[str, int]
    sent: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)


class MessagesStub:
    """A running stub.

    Args:
        answers: One for each request, in order of arrival; once they are used up, every request is refused.

    Attributes:
        asked: All requests so far, oldest first.
    """

    def __init__(self, answers: Iterable[Answer]) -> None:
        self.asked: list[Asked] = []
        self.stopping = threading.Event()
        self._answers = list(answers)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = False  # so that closing the server waits for its threads
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), name="messages-stub")

    @property
    def url(self) -> str:
        """The value for ``ANTHROPIC_BASE_URL``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, *answers: Answer) -> None:
        """Add answers to the script."""
        with self._lock:
            self._answers += answers

    def next_answer(self, asked: Asked) -> tuple[Answer, int]:
        """Record a request; return its answer, and the number of requests so far."""
        with self._lock:
            self.asked.append(asked)
            return (self._answers.pop(0) if self._answers else _EXHAUSTED), len(self.asked)

    def start(self) -> None:
        """Start to serve, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Cut off all answers and stop serving."""
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def messages_stub(*answers: Answer) -> Generator[MessagesStub]:
    """Run a stub for as long as the context lasts."""
    stub = MessagesStub(answers)
    stub.start()
    try:
        yield stub
    finally:
        stub.stop()


class _Handler(BaseHTTPRequestHandler):
    """One connection of one client."""

    protocol_version = "HTTP/1.1"

    def __init__(self, stub: MessagesStub, *connection: Any) -> None:  # noqa: ANN401 - the base's own arguments
        self.stub = stub
        super().__init__(*connection)  # which serves it

    def handle(self) -> None:
        self.close_connection = False
        with suppress(ConnectionError):
            while not self.close_connection and not self.stub.stopping.is_set():
                if select.select([self.connection], [], [], LOOK_S)[0]:
                    self.connection.settimeout(5.0)
                    self.handle_one_request()

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(headers=headers, body=json.loads(text), connection=self.client_address)
        answer, number = self.stub.next_answer(asked)
        if self.path != PATH:
            answer = Refusal(status=404, kind="not_found_error", message=f"there is no {self.path}")
        elif _has_calls(asked.body) and not asked.body.get("tools"):
            answer = _TOOLLESS  # as the provider does
        match answer:
            case Refusal():
                self._refuse(answer, number)
            case Silence():
                self._hang(asked)
            case Reply():
                self._stream(answer, asked, number)
            case _:
                assert_never(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""

    def _refuse(self, refusal: Refusal, number: int) -> None:
        body = {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}
        data = json.dumps(body).encode()
        self.send_response(refusal.status)
        headers = {"content-type": "application/json", "request-id": f"req_{number}", **refusal.headers}
        for name, value in {**headers, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, reply: Reply, asked: Asked, number: int) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for count, event in enumerate(events_of(reply, asked.body["model"], number)):
            if reply.ending is not Ending.WHOLE and count == reply.after:
                asked.sent.set()
                self._break_off(reply, asked)
                return
            if self._pause(reply.pause_s, asked):
                return
            self._send(event)
            if count == 0:
                self._send({"type": "ping"})
        asked.sent.set()
        self._chunk(b"")

    def _break_off(self, reply: Reply, asked: Asked) -> None:
        match reply.ending:
            case Ending.ERROR:
                kind, message = reply.error
                self._send({"type": "error", "error": {"type": kind, "message": message}})
                self._chunk(b"")
            case Ending.CUT:
                self.close_connection = True
            case Ending.HANG:
                self._hang(asked)
            case Ending.CLOSE | Ending.WHOLE:
                self._chunk(b"")
            case _:
                assert_never(reply.ending)

    def _send(self, event: Event) -> None:
        self._chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _hang(self, asked: Asked) -> None:
        while not self.stub.stopping.is_set() and not self._pause(LOOK_S, asked):
            pass
        self.close_connection = True

    def _pause(self, seconds: float, asked: Asked) -> bool:
        """Wait; return whether the client has left or the stub is stopping."""
        if seconds > 0 and select.select([self.connection], [], [], seconds)[0] and self._is_left():
            asked.left.set()
            self.close_connection = True
        return asked.left.is_set() or self.stub.stopping.is_set()

    def _is_left(self) -> bool:
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True


def _has_calls(body: Mapping[str, Any]) -> bool:
    contents = [message["content"] for message in body.get("messages", ()) if not isinstance(message["content"], str)]
    return any(block["type"] in {"tool_use", "tool_result"} for content in contents for block in content)
