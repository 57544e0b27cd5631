"""Posts that are over in time, whatever is answered: of that, only the status and the headers are read."""

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
"""How long a connection that could not be cut, for it was being made, is left before the next try."""


def bounded_session() -> Session:
    """A session of ``requests`` for one thread, which posts to one place."""
    session = Session()
    adapter = BoundedAdapter()
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)
    return session


class BoundedAdapter(HTTPAdapter):
    """Bounds a whole exchange by the timeout that ``requests`` has for each read of it, and reads no body."""

    def __init__(self) -> None:
        super().__init__()
        self._connection: Any = None

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401 - as it has them
        """See ``requests``, whose session names all but the request. The answer's body is empty.

        Raises:
            ReadTimeout: The answer was not there in time.
            InvalidURL: The answer is to ask elsewhere.
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

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it has them
        """See ``requests``. Keeps in mind which connection is made of it."""
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        if not isinstance(pool.ConnectionCls, partial):
            pool.ConnectionCls = partial(self._made, pool.ConnectionCls)
        return pool

    def _made(self, kind: Callable[..., Any], **kwargs: Any) -> Any:  # noqa: ANN401 - urllib3's
        self._connection = kind(**kwargs)
        return self._connection

    def _cut(self) -> None:
        """End what is read and written. The connection is closed by whoever uses it."""
        used = getattr(self._connection, "sock", None)
        if isinstance(used, socket.socket):
            socket.socket.shutdown(used, socket.SHUT_RDWR)  # TLS's own would have what follows written in the clear


class _Watch:
    """Cuts what is not over in time."""

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
