"""The gateway's HTTP API as Python calls, for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2

from harness_worker.client.answers import (
    RequestRefused,
    StackUnreachable,
    body_of,
    events_in,
    how_to_start,
    refusal_of,
)
from harness_worker.errors import ConfigError
from harness_worker.urls import host_of, is_loopback, masked
from harness_worker.wire import JsonObject

__all__ = ["GatewayClient", "RequestRefused", "StackUnreachable", "every"]

TIMEOUT_S: Final = 30.0
STREAM_TIMEOUT_S: Final = 75.0
"""How long a stream of events may be silent, in seconds; longer than the largest ``HARNESS_SSE_HEARTBEAT_S``."""

BATCH_TIMEOUT_S: Final = 120.0
"""How long posting a batch may take, in seconds: a busy database needs a while to store ten thousand turns."""

PAGE: Final = 1_000


class GatewayClient:
    """A client of one gateway; safe to share between threads. Use as a context manager, or ``close`` it.

    Every method raises ``StackUnreachable`` if nothing answers and ``RequestRefused`` if the answer is a problem.

    Args:
        base_url: Such as ``http://127.0.0.1:8700``.
        key: The API key, if the gateway requires one.
        timeout_s: How long it may be silent, in seconds.
        transport: Another httpx2 transport, for tests.

    Raises:
        ConfigError: ``base_url`` is not an HTTP URL.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.base_url = _checked(base_url)
        is_here = is_loopback(host_of(self.base_url))
        is_plain = httpx2.URL(self.base_url).scheme == "http"
        self._http = httpx2.Client(
            base_url=self.base_url,
            headers=headers,
            auth=(lambda request: request) if key else None,  # else a user in the URL would replace the key
            timeout=timeout_s,
            transport=transport,
            trust_env=not is_here,  # HTTP_PROXY is not for this machine
            verify=not (is_here and is_plain),  # without TLS and proxies, authorities would be loaded for nothing
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create_turn(
        self, body: Mapping[str, Any], wait_s: float | None = None, idempotency_key: str | None = None
    ) -> JsonObject:
        """Post a turn and return it: queued or, with ``wait_s``, perhaps already ended.

        Args:
            body: ``{agent, input, …}``, as for ``POST /v1/turns``.
            wait_s: How long the gateway may wait for the end, in seconds.
            idempotency_key: The same key never makes a second turn.
        """
        headers: dict[str, str] = {}
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s:g}"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        return self._send("POST", "/v1/turns", json=dict(body), headers=headers, timeout=TIMEOUT_S + (wait_s or 0.0))

    def fork_turn(self, turn_id: str, body: Mapping[str, Any]) -> JsonObject:
        """Make a turn that continues from a step of another one: ``{from_step, …}``."""
        return self._send("POST", f"/v1/turns/{quote(turn_id, safe='')}/fork", json=dict(body))

    def turn(self, turn_id: str, include: Sequence[str] = ()) -> JsonObject:
        """One turn with its calls; ``include`` adds ``"messages"`` (the history) or ``"scores"``."""
        return self._send(
            "GET", f"/v1/turns/{quote(turn_id, safe='')}", params={"include": ",".join(include)} if include else None
        )

    def turns(self, **filters: str | int) -> JsonObject:
        """One page of turns, newest first: ``{data, next}``; pass ``next`` as ``after``, or see :func:`every`."""
        return self._send("GET", "/v1/turns", params=filters)

    def usage(self, **query: str | int) -> JsonObject:
        """The usage of turns, added up: ``{from, to, by, data, groups, total}``."""
        return self._send("GET", "/v1/usage", params=query)

    def events(self, turn_id: str, after: int = 0) -> JsonObject:
        """One page of a turn's events with ``seq`` above ``after``: ``{data, next}``."""
        return self._send("GET", f"/v1/turns/{quote(turn_id, safe='')}/events", params={"after": after, "limit": PAGE})

    def all_events(self, turn_id: str) -> Iterator[JsonObject]:
        """Every event that exists now, over as many pages as it takes."""
        cursor: int | None = 0
        while cursor is not None:
            page = self.events(turn_id, after=cursor)
            yield from page["data"]
            cursor = page["next"]

    def live_events(self, turn_id: str, after: int = 0) -> Iterator[JsonObject]:
        """Every event above ``after`` as it comes, until the turn's last one or until the gateway ends the stream.

        Events without ``seq`` are live hints. Nothing comes if the turn has ended and ``after`` is its last event. If
        the gateway does not stream, gives the events that exist now.
        """
        headers = {"Accept": "text/event-stream"}
        request = self._http.build_request(
            "GET",
            f"/v1/turns/{quote(turn_id, safe='')}/events",
            params={"after": after},
            headers=headers,
            timeout=httpx2.Timeout(TIMEOUT_S, read=STREAM_TIMEOUT_S),
        )
        with self._reaching():
            response = self._http.send(request, stream=True)
        try:
            yield from self._streamed(response)
        finally:
            response.close()

    def _streamed(self, response: httpx2.Response) -> Iterator[JsonObject]:
        with self._reaching():
            if not response.is_success:
                response.read()
                raise refusal_of(response)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                yield from events_in(response.iter_lines())
            elif response.read():
                yield from body_of(response)["data"]

    def cancel(self, turn_id: str) -> JsonObject:
        """Ask a turn to stop; a finished one comes back unchanged."""
        return self._send("POST", f"/v1/turns/{quote(turn_id, safe='')}/cancel")

    def add_input(self, turn_id: str, body: Mapping[str, Any]) -> JsonObject:
        """Answer a turn that waits: ``{call_id, decision, reason?, arguments?}`` or ``{message}``."""
        return self._send("POST", f"/v1/turns/{quote(turn_id, safe='')}/inputs", json=dict(body))

    def create_batch(self, body: Mapping[str, Any], idempotency_key: str) -> JsonObject:
        """Post ``{requests: [{custom_id, params}], …}``; the same key never makes a second batch."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._send("POST", "/v1/batches", json=dict(body), headers=headers, timeout=BATCH_TIMEOUT_S)

    def batch(self, batch_id: str) -> JsonObject:
        """One batch and its progress."""
        return self._send("GET", f"/v1/batches/{quote(batch_id, safe='')}")

    def batches(self, **filters: str | int) -> JsonObject:
        """One page of batches, as ``turns`` gives one."""
        return self._send("GET", "/v1/batches", params=filters)

    def cancel_batch(self, batch_id: str) -> JsonObject:
        """Ask the turns of a batch that have not ended to stop."""
        return self._send("POST", f"/v1/batches/{quote(batch_id, safe='')}/cancel")

    def batch_results(self, batch_id: str, after: str = "") -> Iterator[JsonObject]:
        """The ended turns of a batch, in order, as ``{custom_id, turn}``; only those after the turn ``after``."""
        path = f"/v1/batches/{quote(batch_id, safe='')}/results"
        with self._reaching(), self._http.stream("GET", path, params={"after": after} if after else None) as response:
            if not response.is_success:
                response.read()
                raise refusal_of(response)
            yield from map(json.loads, filter(None, response.iter_lines()))

    def agents(self) -> list[JsonObject]:
        """The agents that workers have published."""
        return self._send("GET", "/v1/agents")["data"]

    def ready(self) -> bool:
        """Whether the gateway says it can take turns.

        Raises:
            RequestRefused: It says something else: it may be another server.
        """
        try:
            self._send("GET", "/readyz")
        except RequestRefused as refused:
            if refused.code != "not_ready":
                raise
            return False
        return True

    def _send(self, method: str, path: str, **options: Any) -> JsonObject:  # noqa: ANN401 - httpx2's options
        with self._reaching():
            response = self._http.request(method, path, **options)
        if response.is_success:
            return body_of(response)
        raise refusal_of(response)

    @contextmanager
    def _reaching(self) -> Generator[None]:
        try:
            yield
        except (httpx2.TransportError, httpx2.InvalidURL) as broken:
            raise StackUnreachable(how_to_start(self.base_url, broken)) from broken


def every(page: Callable[..., JsonObject], **filters: str | int) -> Iterator[JsonObject]:
    """Every item of a list, over as many pages as it takes; each page is asked for when its first item is.

    Args:
        page: Gives one page, such as ``GatewayClient.turns``.
        **filters: What it is asked with. A page may have fewer items than its ``limit`` and not be the last.
    """
    found = page(**filters)
    yield from found["data"]
    while found["next"]:
        found = page(**filters, after=found["next"])
        yield from found["data"]


def _checked(base_url: str) -> str:
    try:
        url = httpx2.URL(base_url)
        is_one = (
            url.scheme in {"http", "https"} and url.host.encode("idna") != b"" and (url.port or 1) in range(1 << 16)
        )
    except (httpx2.InvalidURL, ValueError):
        is_one = False
    if not is_one:
        raise ConfigError(
            f"{masked(base_url)!r} is no address of a gateway: give http://HOST:PORT with --url or HARNESS_GATEWAY_URL"
        )
    return base_url.rstrip("/")
