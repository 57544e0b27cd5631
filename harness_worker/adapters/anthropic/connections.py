"""Connections that another thread can close, even while they wait for bytes."""

from __future__ import annotations

import socket
import weakref
from contextlib import suppress
from typing import Any, Final

import anthropic
import httpx2

from harness_worker.adapters.anthropic.failures import told_by_environment

CONNECT_TIMEOUT_S: Final = 10.0
ANTHROPIC: Final = "https://api.anthropic.com"


class Connection:
    """One SDK client that holds at most one connection, and knows its socket.

    Closing a client or a response from another thread does not wake a read that waits for bytes. Shutting down the
    socket does, and the other side notices at once. A pool of several connections would not tell whose socket is whose.

    Args:
        api_key: The provider's key.
        base_url: The provider's URL; ``None``: Anthropic itself, whatever ``ANTHROPIC_BASE_URL`` is, be it empty.
        tls: The TLS context, shared between connections because it takes long to create.
    """

    def __init__(self, api_key: str, base_url: str | None, tls: Any) -> None:  # noqa: ANN401 - ssl.SSLContext or like
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._http = anthropic.DefaultHttpxClient(
            verify=tls,
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=1),
            event_hooks={"request": [self._follow]},
        )
        self.client = anthropic.Anthropic(
            api_key=api_key,
            base_url=base_url or ANTHROPIC,
            max_retries=0,
            http_client=self._http,
            open_telemetry=False,
        )

    def cut(self) -> None:
        """Break the connection, now or as soon as it is open. It cannot be used any more."""
        self._is_cut = True  # first, as the other thread first keeps the socket: so at least one of them sees both
        self._shut()

    def close(self) -> None:
        """Close the connection; call it only while nobody uses it."""
        self._http.close()

    def _follow(self, request: httpx2.Request) -> None:
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if not event.endswith(("connect_tcp.complete", "start_tls.complete")):
            return
        self._socket = info["return_value"].get_extra_info("socket")
        if self._is_cut:
            self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # already closed
                # Not SSLSocket.shutdown, which would remove the TLS state while the other thread reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class ConnectionPool:
    """Free connections, kept for reuse because a TLS handshake costs two round trips.

    Args:
        api_key: The provider's key.
        base_url: The provider's URL.
    """

    def __init__(self, api_key: str, base_url: str | None) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._tls: Any = None
        self._free: list[Connection] = []
        weakref.finalize(self, _close_all, self._free)

    def take(self) -> Connection:
        """Check out a connection, for one user at a time.

        Raises:
            ModelError: The environment names a proxy or certificates that cannot be used.
            TransientError: The system was short of descriptors or memory.
        """
        with suppress(IndexError):
            return self._free.pop()
        try:
            self._tls = self._tls or httpx2.create_ssl_context()
            return Connection(self._api_key, self._base_url, self._tls)
        except (OSError, ImportError, ValueError, httpx2.InvalidURL) as error:
            raise told_by_environment(error) from None

    def put(self, connection: Connection) -> None:
        """Return a connection that still works."""
        self._free.append(connection)


class Checkout:
    """One use of a connection. It is ended once: by the thread that reads, or by the one that gives up waiting.

    Args:
        pool: The pool that the connection returns to if it is intact.
        connection: The connection.
    """

    def __init__(self, pool: ConnectionPool, connection: Connection) -> None:
        self.connection = connection
        self._pool = pool
        self._going_on = [True]
        """Empty once the use has ended. Its operations are atomic; a lock might stay locked after an error."""

    def cut(self) -> None:
        """Break the connection, unless its use has already ended."""
        with suppress(IndexError):
            self._going_on.pop()
            self.connection.cut()

    def end(self, *, whole: bool) -> None:
        """Return the connection to the pool, or close it if it is cut or broken. Called by the thread that reads."""
        try:
            goes_back = self._going_on.pop() and whole
        except IndexError:
            goes_back = False
        if goes_back:
            self._pool.put(self.connection)
        else:
            self.connection.close()


def _close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()
