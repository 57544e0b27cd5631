"""A service outside the harness that has an effect for each request and counts it: the witness of "exactly once"."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

CallKey: TypeAlias = tuple[str, str]
"""A turn's id and a call's."""


@dataclass(slots=True, kw_only=True)
class Outside:
    """What was done to the outside world.

    Args:
        address: ``HOST:PORT``, for tools to POST to.
        effects: How often each call had an effect. A repeat with a known key has none if the request asks for that.
        asked: How many requests each call made.
    """

    address: str = ""
    effects: Counter[CallKey] = field(default_factory=Counter[CallKey])
    asked: Counter[CallKey] = field(default_factory=Counter[CallKey])
    _keys: set[str] = field(default_factory=set[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do(self, effect: dict[str, Any]) -> None:
        """Perform and count the effect that a tool requests."""
        call = (effect["turn"], effect["call"])
        with self._lock:
            self.asked[call] += 1
            if not (effect["once"] and effect["key"] in self._keys):
                self._keys.add(effect["key"])
                self.effects[call] += 1


@contextmanager
def service_outside(host: str = "127.0.0.1") -> Generator[Outside]:
    """Serve on a free port of an address, from threads of this process."""
    outside = Outside()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            outside.do(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
            """Log nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the tool's process was killed during its request
                return

    with ThreadingHTTPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        outside.address = f"{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, name="outside", daemon=True)
        thread.start()
        yield outside
        server.shutdown()
        thread.join()
