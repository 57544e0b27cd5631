"""HTTP posts with a firm time limit, whatever the server answers; only the status and the headers are read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any, Final

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidURL, ReadTimeout

AGAIN_S: Final = 1.0
"""How long to wait, in seconds, before trying again to cut a connection that was still being made."""


def bounded_session() -> Session:
    """A session of ``requests`` for one thread, which posts to one place."""
    session = Session()
    adapter = BoundedAdapter()
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)
    return session


class BoundedAdapter(HTTPAdapter):
    """Limits a whole exchange by the timeout that ``requests`` applies to each read, and reads no body."""

    def __init__(self) -> None:
        super().__init__()
        self._connection: Any = None

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401 - requests' own signature
        """See ``requests``, whose session passes everything but the request by name. The response's body is empty.

        Raises:
            ReadTimeout: The response did not arrive in time.
            InvalidURL: The response is a redirect.
        """
        with _Watch(kwargs["timeout"], self._cut) as watch:
            answer = super().send(request, *args, **{**kwargs, "stream": True})
            answer.close()
        if watch.is_late:
            raise ReadTimeout("the answer did not come in time", request=request)
        if answer.status_code // 100 == 3:
            raise InvalidURL(f"the answer {answer.status_code} sends elsewhere, which is not followed", request=request)
        answer.raw = BytesIO()
        return answer

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - requests' own signature
        """See ``requests``. Remembers the connection that is made."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        if not isinstance(pool.ConnectionCls, partial):
            pool.ConnectionCls = partial(self._made, pool.ConnectionCls)
        return pool

    def _made(self, kind: Callable[..., Any], **kwargs: Any) -> Any:  # noqa: ANN401 - urllib3's
        self._connection = kind(**kwargs)
        return self._connection

    def _cut(self) -> None:
        """Stop reading and writing. The connection is closed by its user."""
        used = getattr(self._connection, "sock", None)
        if isinstance(used, socket.socket):
            socket.socket.shutdown(used, socket.SHUT_RDWR)  # after TLS's own shutdown, data would be sent unencrypted


class _Watch:
    """Cuts an exchange that takes too long."""

    def __init__(self, timeout_s: float, cut: Callable[[], None]) -> None:
        self.is_late = False
        self._cut = cut
        self._over = threading.Event()
        self._timeout_s = min(threading.TIMEOUT_MAX, timeout_s)
        self._thread = threading.Thread(target=self._run, name="traces-watch", daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _run(self) -> None:
        wait_s = self._timeout_s
        while not self._over.wait(wait_s):
            self.is_late, wait_s = True, AGAIN_S
            with suppress(OSError):
                self._cut()
