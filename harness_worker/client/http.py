"""Single requests to a gateway: what it answers, or an error that says what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import httpx2

from harness_worker.client.answers import StackUnreachable, body_of, how_to_start, no_address, refusal_of, text_of
from harness_worker.errors import SHORTAGES, ConfigError
from harness_worker.urls import host_of, is_loopback, no_environment
from harness_worker.wire import JsonObject

IDLE: Final = 20
"""How many connections are kept for later requests."""

LONGEST_TIMEOUT_S: Final = 1_000_000
"""Sockets wait twice as long at most, in seconds."""


class Http:
    """Sends each request once; safe to share between threads, and with processes that are forked.

    Every method raises ``StackUnreachable`` if nothing answers and ``RequestRefused`` if the answer is a problem.

    Args:
        base_url: Such as ``http://127.0.0.1:8700``.
        key: The API key, if the gateway requires one.
        timeout_s: How long the gateway may be silent, in seconds.
        transport: Another httpx2 transport, for tests.

    Raises:
        ConfigError: ``base_url`` is not an HTTP URL, ``timeout_s`` is no time that a socket can wait, or the
            environment's proxies or certificates cannot be used.
    """

    def __init__(
        self, base_url: str, key: str | None, timeout_s: float, transport: httpx2.BaseTransport | None
    ) -> None:
        self.base_url = _checked(base_url)
        if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
            raise ConfigError(f"timeout_s must be seconds above 0 and at most {LONGEST_TIMEOUT_S}, not {timeout_s}")
        self.timeout_s = timeout_s
        self._connect = partial(_connections, self.base_url, key, timeout_s, transport)
        self._owner = os.getpid()
        try:
            self._http = self._connect()
        except (OSError, ImportError, ValueError, httpx2.InvalidURL) as error:  # their words may hold a password
            if isinstance(error, OSError) and error.errno in SHORTAGES:
                raise
            raise ConfigError(no_environment(type(error).__name__)) from None

    def close(self) -> None:
        """Close the connections."""
        self._own().close()

    def send(self, method: str, path: str, member: str = "id", **options: Any) -> JsonObject:  # noqa: ANN401 - httpx2's
        """The JSON object that a request is answered with; one without this member is not the gateway's."""
        return body_of(self._answer(method, path, **options), member)

    def text(self, path: str) -> str:
        """The whole text that is found there."""
        return text_of(self._answer("GET", path))

    @contextmanager
    def streamed(self, path: str, **options: Any) -> Generator[httpx2.Response]:  # noqa: ANN401 - httpx2's options
        """A successful answer that is read within the context, as it comes."""
        with self._reaching(), self._own().stream("GET", path, **options) as response:
            if not response.is_success:
                response.read()
                raise refusal_of(response)
            yield response

    def _answer(self, method: str, path: str, **options: Any) -> httpx2.Response:  # noqa: ANN401 - httpx2's
        with self._reaching():
            response = self._own().request(method, path, **options)
        if response.is_success:
            return response
        raise refusal_of(response)

    def _own(self) -> httpx2.Client:
        """The connections of this process: on those that it was forked with, it would get its parent's answers."""
        if self._owner != os.getpid():
            self._http, self._owner = self._connect(), os.getpid()
        return self._http

    @contextmanager
    def _reaching(self) -> Generator[None]:
        try:
            yield
        except (httpx2.RequestError, httpx2.InvalidURL) as broken:
            raise self.unreachable(str(broken) or type(broken).__name__) from None

    def unreachable(self, reason: str) -> StackUnreachable:
        """The error that nothing answers, or that an answer broke off, for this reason."""
        return StackUnreachable(how_to_start(self.base_url, reason), reason)


def turn_path(turn_id: str, part: str = "") -> str:
    """The path of a turn, or of a part of it such as ``"/events"``."""
    return f"/v1/turns/{quote(turn_id, safe='')}{part}"


def artifact_path(artifact_id: str) -> str:
    """The path of an artifact."""
    return f"/v1/artifacts/{quote(artifact_id, safe='')}"


def batch_path(batch_id: str, part: str = "") -> str:
    """The path of a batch, or of a part of it such as ``"/results"``."""
    return f"/v1/batches/{quote(batch_id, safe='')}{part}"


def _connections(
    base_url: str, key: str | None, timeout_s: float, transport: httpx2.BaseTransport | None
) -> httpx2.Client:
    is_here = is_loopback(host_of(base_url))
    is_plain = httpx2.URL(base_url).scheme == "http"
    return httpx2.Client(
        base_url=base_url,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        auth=(lambda request: request) if key else None,  # else a user in the URL would replace the key
        timeout=timeout_s,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=IDLE),  # each thread has one
        transport=transport,
        trust_env=not is_here,  # HTTP_PROXY is not for this machine
        # without TLS and proxies, authorities would be loaded for nothing; SSL_CERT_FILE is for this machine too
        verify=False if is_here and is_plain else httpx2.create_ssl_context(),
    )


def _checked(base_url: str) -> str:
    try:
        url = httpx2.URL(base_url)
        is_one = (
            url.scheme in {"http", "https"}
            and url.host.encode("idna") != b""
            and (url.port or 1) in range(1 << 16)
            and not re.search(r"[\s?#]", base_url)  # a path is added to it
        )
    except (httpx2.InvalidURL, ValueError):
        is_one = False
    if not is_one:
        raise ConfigError(no_address(base_url))
    return base_url.rstrip("/")
