"""A relay before a database's server, which can fall silent, or break a connection at a given statement."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sqlalchemy import make_url


class Relay:
    """Passes on what it receives, both ways, until it is silenced: the connections of then stand for ever, unanswered.

    So does a proxy whose far side is gone. What comes is acknowledged; nothing is passed on, nothing is closed.

    Args:
        url: The database, at a host and a port.
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
        """The database, through the relay."""

    def silence(self) -> None:
        """Pass on nothing more on the connections that are open; those made later work."""
        with self._lock:
            self._silent.update(self._sockets)

    def break_at(self, statement: bytes) -> None:
        """Break the connection on which the statement is sent next: the server runs it, and nobody hears its answer."""
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
        """End every connection."""
        for each in (self._listener, *self._sockets):
            with suppress(OSError):  # it is closed already
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
    """A relay before a database."""
    server = Relay(url)
    accepting = threading.Thread(target=server.serve)
    accepting.start()
    try:
        yield server
    finally:
        server.close()
        accepting.join()
