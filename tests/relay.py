"""A relay in front of a database server, which can fall silent, or break a connection at a given statement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sqlalchemy import make_url


class Relay:
    """Passes on what it receives, in both directions, until it is silenced.

    Connections that are open then stay open without an answer, as with a proxy whose far side is gone: what comes is
    acknowledged, but nothing is passed on and nothing is closed.

    Args:
        url: The database's URL, with a host and a port.
    """

    def __init__(self, url: str) -> None:
        behind = make_url(url)
        assert behind.host is not None
        assert behind.port is not None
        self._target = (behind.host, behind.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        self._breaks_at: bytes | None = None
        self._broken: set[socket.socket] = set()
        here = behind.set(host="127.0.0.1", port=self._listener.getsockname()[1])
        self.url: str = here.render_as_string(hide_password=False)
        """The database's URL through the relay."""

    def silence(self) -> None:
        """Stop passing on data on connections that are open now; later ones work."""
        with self._lock:
            self._silent.update(self._sockets)

    def break_at(self, statement: bytes) -> None:
        """Break the next connection on which the statement is sent: the server runs it, but its answer is lost."""
        with self._lock:
            self._breaks_at = statement

    def serve(self) -> None:
        """Accept connections until closed."""
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(self._target)
                with self._lock:
                    self._sockets += (near, far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        for each in (self._listener, *self._sockets):
            with suppress(OSError):  # already closed
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65_536):
                with self._lock:
                    if source in self._silent:
                        return
                    if source in self._broken:
                        break
                    if self._breaks_at is not None and self._breaks_at in received:
                        self._breaks_at = None
                        self._broken.add(sink)
                sink.sendall(received)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay(url: str) -> Generator[Relay]:
    """Run a relay in front of a database."""
    server = Relay(url)
    accepting = threading.Thread(target=server.serve)
    accepting.start()
    try:
        yield server
    finally:
        server.close()
        accepting.join()
