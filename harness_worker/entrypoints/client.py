"""The gateway's HTTP API as Python calls (contracts.md, "HTTP"), for the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, cast

import httpx

from harness_worker.errors import HarnessError, TransientError

TIMEOUT_S: Final = 30.0
PAGE: Final = 1_000
JsonObject = dict[str, Any]


class StackUnreachable(TransientError):  # noqa: N818 - reads as what it says
    """Nothing answers at the gateway's address; the message says how to start a stack."""


class RequestRefused(HarnessError):  # noqa: N818 - reads as what it says
    """The gateway answered with a problem.

    Args:
        status: The HTTP status.
        code: The problem's stable code, such as ``unknown_agent``.
        detail: What was wrong, for a person.
        problem: The whole problem document.
    """

    def __init__(self, status: int, code: str, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{detail} ({status} {code})")
        self.status = status
        self.code = code
        self.detail = detail
        self.problem = dict(problem or {})


class GatewayClient:
    """A client of one gateway; safe to share between threads. Use as a context manager, or ``close`` it.

    Every method raises ``StackUnreachable`` if nothing answers and ``RequestRefused`` if the answer is a problem.

    Args:
        base_url: Such as ``http://127.0.0.1:8700``.
        key: The API key, if the gateway asks for one.
        transport: Another httpx transport, for tests.
    """

    def __init__(self, base_url: str, key: str | None = None, *, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(base_url=self.base_url, headers=headers, timeout=TIMEOUT_S, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def create_turn(
        self, body: Mapping[str, Any], wait_s: float | None = None, idempotency_key: str | None = None
    ) -> JsonObject:
        """Post a turn and return it, as queued or, with ``wait_s``, perhaps as finished.

        Args:
            body: ``{agent, input, …}`` as ``POST /v1/turns`` takes it.
            wait_s: How long the gateway may wait for the end, in seconds.
            idempotency_key: The same key never makes a second turn.
        """
        headers: dict[str, str] = {}
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s:g}"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        return self._send("POST", "/v1/turns", json=dict(body), headers=headers, timeout=TIMEOUT_S + (wait_s or 0.0))

    def turn(self, turn_id: str, include: Sequence[str] = ()) -> JsonObject:
        """One turn with its calls; ``include=["messages"]`` adds the history."""
        return self._send("GET", f"/v1/turns/{turn_id}", params={"include": ",".join(include)} if include else None)

    def turns(self, **filters: str | int) -> JsonObject:
        """One page of turns, newest first: ``{data, next}``; give ``next`` as ``after``."""
        return self._send("GET", "/v1/turns", params=filters)

    def events(self, turn_id: str, after: int = 0, limit: int = PAGE) -> JsonObject:
        """One page of a turn's events with ``seq`` above ``after``: ``{data, next}``."""
        return self._send("GET", f"/v1/turns/{turn_id}/events", params={"after": after, "limit": limit})

    def new_events(self, turn_id: str, after: int = 0) -> Iterator[JsonObject]:
        """Every event that stands above ``after`` now, over as many pages as it takes."""
        cursor: int | None = after
        while cursor is not None:
            page = self.events(turn_id, after=cursor)
            yield from page["data"]
            cursor = page["next"]

    def cancel(self, turn_id: str) -> JsonObject:
        """Ask a turn to stop; a finished one comes back unchanged."""
        return self._send("POST", f"/v1/turns/{turn_id}/cancel")

    def agents(self) -> list[JsonObject]:
        """The agents that workers have published."""
        return self._send("GET", "/v1/agents")["data"]

    def ready(self) -> bool:
        """Whether the gateway says it can take turns."""
        try:
            self._send("GET", "/readyz")
        except RequestRefused:
            return False
        return True

    def _send(self, method: str, path: str, **options: Any) -> JsonObject:  # noqa: ANN401 - httpx's options
        try:
            response = self._http.request(method, path, **options)
        except (httpx.TransportError, httpx.InvalidURL) as broken:
            raise StackUnreachable(_how_to_start(self.base_url, broken)) from broken
        if response.is_success:
            return _body(response)
        raise _refusal(response)


def _how_to_start(url: str, broken: Exception) -> str:
    return (
        f"nothing answers at {url} ({broken or type(broken).__name__}). Start a stack with\n"
        "  harness up --app package.module:registry\n"
        "or give the address of a running one with --url or HARNESS_GATEWAY_URL."
    )


def _body(response: httpx.Response) -> JsonObject:
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict):
        return cast("JsonObject", body)
    raise _unexpected(response)


def _unexpected(response: httpx.Response) -> RequestRefused:
    detail = f"{response.url} answered {response.status_code} with something unexpected: is it the gateway?"
    return RequestRefused(response.status_code, "unexpected_answer", detail)


def _refusal(response: httpx.Response) -> RequestRefused:
    try:
        problem: JsonObject = response.json()
        detail = problem.get("detail") or problem["title"]
        return RequestRefused(response.status_code, problem["code"], f"{detail}{_places(problem)}", problem)
    except (ValueError, KeyError, TypeError, AttributeError):
        return _unexpected(response)


def _places(problem: JsonObject) -> str:
    errors: list[JsonObject] = problem.get("errors") or []
    return "".join(f"\n  {'.'.join(str(part) for part in error['loc'])}: {error['msg']}" for error in errors)
