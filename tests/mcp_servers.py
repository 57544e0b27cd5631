"""MCP servers as processes, what their tools wrote down, and a proxy that misbehaves."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from harness_worker import RunContext
from harness_worker.adapters.embedded.ports import LOOPBACK, listening_socket
from harness_worker.adapters.mcp.exchanges import MOST_BYTES
from harness_worker.core.run_context import DeadlineToken
from harness_worker.testing.waiting import wait_until

ROOT = Path(__file__).parents[1]
STDIO = (sys.executable, "-m", "tests.apps.mcp.server")

Json: TypeAlias = dict[str, Any]


def odd(kind: str) -> list[str]:
    """The command of a server that lists odd tools."""
    return [sys.executable, "-I", "-S", str(ROOT / "tests" / "apps" / "mcp" / "odd.py"), kind]


def context(*, seconds: float = 30.0) -> RunContext:
    """A call's context, with so much time."""
    deadline = DeadlineToken(at_s=time.monotonic() + seconds, clock=time.monotonic)
    return RunContext(
        turn_id="t",
        call_id="0.0",
        session_id="s",
        tenant="t",
        attempt=1,
        idempotency_key="t:0.0",
        deadline=deadline,
    )


class Notes:
    """What the tools of servers wrote down.

    Args:
        file: Where; given to servers as ``NOTES``.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def of(self, event: str) -> list[Json]:
        """The lines of one kind."""
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]

    def clear(self) -> None:
        """Forget them."""
        self.file.write_text("")

    def wait(self, event: str, times: int = 1) -> Json:
        """The last line of one kind, as soon as there are so many."""
        found = wait_until(lambda: self.of(event)[times - 1 :], f"a server to note {event}", 60)
        return found[-1]


class HttpServer:
    """A server over HTTP, which may be killed and started again on its port."""

    def __init__(self, notes: Notes) -> None:
        with listening_socket() as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://{LOOPBACK}:{self.port}/mcp"
        self._env = {**os.environ, "NOTES": str(notes.file)}
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [*STDIO, str(self.port)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._env, stderr=subprocess.DEVNULL)
        try:
            wait_until(self._listens, "the server to listen", 30)
        except TimeoutError:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex((LOOPBACK, self.port)) == 0


@contextmanager
def http_server(notes: Notes) -> Generator[HttpServer]:
    """A server over HTTP."""
    server = HttpServer(notes)
    try:
        yield server
    finally:
        server.kill()


class Proxy(ThreadingHTTPServer):
    """Stands before a server, and spoils calls of its tools.

    Attributes:
        status: What to answer a call with, instead of asking the server.
        floods: Whether to answer a call with few bytes that are too many when they are unpacked.
        loses: Whether to keep what the server answers to a call to itself, and hang up.
        seen: The headers of every request.
    """

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__((LOOPBACK, 0), _Spoiling)
        self.behind = behind
        self.url = f"http://{LOOPBACK}:{self.server_port}/mcp"
        self.status: int | None = None
        self.floods = False
        self.loses = False
        self.seen: list[dict[str, str]] = []


class _Spoiling(BaseHTTPRequestHandler):
    server: Proxy  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        """One message."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        request = json.loads(body)
        is_call = request.get("method") == "tools/call"
        if is_call and self.server.status is not None:
            self.send_error(self.server.status)
            return
        if is_call and self.server.floods:
            self._flood(request["id"])
            return
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")}
        answer = httpx2.post(self.server.behind, content=body, headers=kept, timeout=30, trust_env=False)
        if is_call and self.server.loses:
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        for name in ("content-type", "mcp-session-id"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def _flood(self, request_id: object) -> None:
        content = [{"type": "text", "text": "x" * MOST_BYTES}]
        answer = {"jsonrpc": "2.0", "id": request_id, "result": {"content": content, "isError": False}}
        packed = gzip.compress(json.dumps(answer).encode(), compresslevel=1)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(packed)))
        self.end_headers()
        self.wfile.write(packed)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name for it
        """Say nothing."""


@contextmanager
def proxy(behind: str) -> Generator[Proxy]:
    """A proxy before a server."""
    with Proxy(behind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
