"""The gateway's HTTP API as Python calls, for other services and for the command line."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import httpx2

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.answers import RequestRefused, StackUnreachable
from harness_worker.client.following import batch_results, live_events, recorded_events
from harness_worker.client.http import Http, artifact_path, batch_path, turn_path
from harness_worker.client.patience import AWAY_S, Patience
from harness_worker.client.polling import poll
from harness_worker.client.requests import body_with, every, posting_headers, query_of
from harness_worker.config import load_settings
from harness_worker.urls import masked
from harness_worker.wire import LONGEST_WAIT_S, JsonObject, TurnStatus, has_ended

if TYPE_CHECKING:
    from harness_worker.ports import Clock

__all__ = ["GatewayClient", "RequestRefused", "StackUnreachable"]

TIMEOUT_S: Final = 30.0
BATCH_TIMEOUT_S: Final = 120.0
"""How long posting a batch may take, in seconds: a busy database needs a while to store ten thousand turns."""

HERE: Final = "http://127.0.0.1:8700"
"""Where ``harness up`` serves unless it is told otherwise."""


class GatewayClient:
    """A client of one gateway; threads and forked processes may share it. Use as a context manager, or ``close`` it.

    Turns, batches and events are dicts, as the HTTP API gives them (docs/reference/turns.md, batches.md, events.md).
    Every request is tried again while the gateway restarts or says that it is busy (429, 503), after the time that its
    ``Retry-After`` names. Nothing happens twice by that: posts carry an idempotency key, and the rest may be repeated.

    Every method raises

    - ``StackUnreachable`` if nothing answers, for ``patience_s`` seconds;
    - ``RequestRefused`` if the gateway refuses: its ``status`` and ``code`` are those of docs/reference/events.md.

    Args:
        base_url: Such as ``http://127.0.0.1:8700``; by default ``HARNESS_GATEWAY_URL``, else that one.
        api_key: By default ``HARNESS_API_KEY``; ``""``: none.
        patience_s: How long a request is tried again, in seconds, from its first failure on; 0: not at all.
        timeout_s: How long the gateway may be silent, in seconds; when it stores a batch 120, and in a stream of
            events, where it sends heartbeats, 75.
        transport: Another httpx2 transport, for tests.

    Raises:
        ConfigError: The address is not an HTTP URL, the key is none that a header can hold, ``timeout_s`` is no time
            that a socket can wait, or the environment's proxies or certificates cannot be used.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        patience_s: float = AWAY_S,
        timeout_s: float = TIMEOUT_S,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        settings = load_settings(api_key=api_key)
        url = (settings.gateway_url or HERE) if base_url is None else base_url
        self._http = Http(url, settings.gateway_key, timeout_s, transport)
        self._patiently = Patience(clock=SystemClock(), away_s=patience_s, busy_s=patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({masked(self.base_url)!r})"

    def close(self) -> None:
        """Close the connections, which clients of ``with_patience`` share. A later request is a ``RuntimeError``."""
        self._http.close()

    @property
    def base_url(self) -> str:
        """The gateway's address."""
        return self._http.base_url

    def with_patience(
        self, patience_s: float = AWAY_S, *, busy_s: float | None = None, clock: Clock | None = None
    ) -> Self:
        """The same client with another patience; they share their connections.

        Args:
            patience_s: How long a request is tried again, in seconds; 0: not at all.
            busy_s: How long while the gateway answers that it is busy, if that differs from ``patience_s``.
            clock: For waiting, here and in ``wait``.
        """
        other = copy(self)
        busy_s = patience_s if busy_s is None else busy_s
        clock = clock or self._patiently.clock
        other._patiently = Patience(clock=clock, away_s=patience_s, busy_s=busy_s)  # noqa: SLF001
        return other

    def create_turn(
        self,
        agent: str,
        input: str,  # noqa: A002 - the API's name
        *,
        idempotency_key: str | None = None,
        wait_s: float = 0.0,
        traceparent: str | None = None,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> JsonObject:
        """Post a turn and return it: queued or, with ``wait_s``, perhaps already ended.

        Args:
            agent: Which agent to ask.
            input: The user's message.
            idempotency_key: The same key never makes a second turn, for a day: name what the turn is for, and the
                caller may be killed and post again. By default a new one.
            wait_s: How long the gateway may wait for the end or for a person to be needed, in seconds; 60 at most.
            traceparent: The caller's span, below which the turn's is put (W3C Trace Context).
            **fields: The other fields of ``POST /v1/turns``, such as ``session_id``, ``metadata`` and ``budget``.

        Raises:
            ConfigError: ``idempotency_key`` or ``traceparent`` is none that a header can hold.
        """
        body = {"agent": agent, "input": input, **fields}
        return self._post("/v1/turns", body, idempotency_key, wait_s, traceparent)

    def fork_turn(
        self,
        turn_id: str,
        from_step: int,
        *,
        idempotency_key: str | None = None,
        wait_s: float = 0.0,
        traceparent: str | None = None,
        **fields: Any,  # noqa: ANN401 - JSON
    ) -> JsonObject:
        """Make a turn that continues from a step of another one, and return it; otherwise like ``create_turn``.

        Args:
            turn_id: The turn to fork.
            from_step: The first step that is run anew.
            idempotency_key: As for ``create_turn``.
            wait_s: As for ``create_turn``.
            traceparent: As for ``create_turn``.
            **fields: What differs from that turn: the other fields of ``POST /v1/turns/{id}/fork``.
        """
        body = {"from_step": from_step, **fields}
        return self._post(turn_path(turn_id, "/fork"), body, idempotency_key, wait_s, traceparent)

    def turn(self, turn_id: str, *include: str) -> JsonObject:
        """One turn with its calls, and with its ``"messages"`` (the history) and ``"scores"`` if these are named."""
        return self._send("GET", turn_path(turn_id), params={"include": ",".join(include)} if include else None)

    def wait(self, turn_id: str, timeout_s: float, *, past_approvals: bool = False) -> JsonObject:
        """The turn once it has ended or needs a person, or as it is when ``timeout_s`` seconds have passed.

        Its ``status`` tells which, and ``required_actions`` and ``subagent_actions`` what a person is needed for.

        Args:
            turn_id: The turn.
            timeout_s: How long to wait, in seconds; ``math.inf``: no limit.
            past_approvals: Whether to go on waiting while it needs a person.
        """
        is_over = has_ended if past_approvals else _rests
        return poll(lambda: self.turn(turn_id), is_over, timeout_s, self._patiently.clock)

    def events(self, turn_id: str, after: int = 0, *, follow: bool = True) -> Generator[JsonObject]:
        """A turn's events as they come, each once and in order, until its last, over connections that break.

        Hints, such as ``model.delta``, are events without ``seq``: they come live or not at all.

        Args:
            turn_id: The turn.
            after: The ``seq`` of the last event that is already known.
            follow: Whether to wait for those that do not exist yet; otherwise there are no hints.
        """
        return (live_events if follow else recorded_events)(self._http, self._patiently, turn_id, after)

    def cancel(self, turn_id: str) -> JsonObject:
        """Ask a turn to stop, and return it as it is then; it ends within about a second. One that has ended stays."""
        return self._send("POST", turn_path(turn_id, "/cancel"))

    def approve(
        self, turn_id: str, call_id: str, *, arguments: Mapping[str, Any] | None = None, reason: str | None = None
    ) -> JsonObject:
        """Let a call run that waits for a person, and return its turn.

        The first answer counts; a later one is refused as ``stale_input``, or as ``turn_finished`` if the turn has
        ended. That may be this one, if the connection broke when it was first sent: the event ``approval.resolved``
        says what was decided.

        Args:
            turn_id: The turn, or the ``turn_id`` of a subagent's action.
            call_id: The call.
            arguments: Run it with these instead of the model's.
            reason: Why; it is kept in the event, and the model does not read it.
        """
        return self._answer(turn_id, call_id=call_id, decision="approve", arguments=arguments, reason=reason)

    def deny(self, turn_id: str, call_id: str, *, reason: str | None = None) -> JsonObject:
        """Keep a call from running, as ``approve`` lets it run; the model reads the ``reason``."""
        return self._answer(turn_id, call_id=call_id, decision="deny", reason=reason)

    def deny_all(self, turn_id: str, message: str) -> JsonObject:
        """Deny all calls of a turn that wait for a person, as ``deny`` does one; the model reads the ``message``."""
        return self._answer(turn_id, message=message)

    def turns(self, **filters: Any) -> Iterator[JsonObject]:  # noqa: ANN401 - strings, numbers, and the metadata
        """All turns that match, newest first, over as many pages as it takes.

        Args:
            **filters: Those of ``GET /v1/turns``: ``status``, ``agent``, ``session_id``, ``batch_id``, ``parent_id``,
                ``metadata`` as a mapping, and ``limit``, the size of a page.
        """
        return every(self.turns_page, **filters)

    def turns_page(self, **filters: Any) -> JsonObject:  # noqa: ANN401 - as above
        """One page of turns: ``{data, next}``; pass ``next`` as ``after`` to get the page behind it."""
        return self._send("GET", "/v1/turns", "data", params=query_of(filters))

    def artifact(self, artifact_id: str) -> str:
        """A tool's whole output that was too long for the model, as long as it is kept (docs/reference/artifacts.md).

        Args:
            artifact_id: What a call's ``content`` begins with, up to the colon, if its outcome is an artifact.
        """
        return self._patiently(partial(self._http.text, artifact_path(artifact_id)))

    def usage(self, *, since: str | None = None, until: str | None = None, **query: Any) -> JsonObject:  # noqa: ANN401
        """The usage of turns, added up: ``{from, to, by, data, groups, total}`` (docs/reference/usage.md).

        Args:
            since: The beginning of the period, a day or an RFC 3339 time; the parameter ``from`` of the HTTP API.
            until: Its end; the parameter ``to``.
            **query: The other parameters, such as ``by`` and ``status``; ``metadata`` as a mapping.
        """
        return self._send("GET", "/v1/usage", "data", params=query_of({"from": since, "to": until, **query}))

    def agents(self) -> list[JsonObject]:
        """The agents that workers have published."""
        return self._send("GET", "/v1/agents", "data")["data"]

    def create_batch(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        metadata: Mapping[str, str] | None = None,
        traceparent: str | None = None,
    ) -> JsonObject:
        """Post turns, all or none, and return their batch.

        Args:
            requests: ``{"custom_id": …, "params": {"agent": …, "input": …, …}}``, one for each turn.
            idempotency_key: As for ``create_turn``.
            metadata: Kept with the batch.
            traceparent: The caller's span, below which those of the turns are put.
        """
        body = {"requests": list(requests), "metadata": metadata}
        headers = posting_headers(idempotency_key, traceparent=traceparent)
        timeout = httpx2.Timeout(self._http.timeout_s, read=BATCH_TIMEOUT_S)
        return self._send("POST", "/v1/batches", json=body_with(body), headers=headers, timeout=timeout)

    def batch(self, batch_id: str) -> JsonObject:
        """One batch and its progress."""
        return self._send("GET", batch_path(batch_id))

    def wait_batch(self, batch_id: str, timeout_s: float) -> JsonObject:
        """The batch once all its turns have ended, or as it is when ``timeout_s`` seconds have passed."""
        return poll(lambda: self.batch(batch_id), batch_has_ended, timeout_s, self._patiently.clock)

    def batch_results(self, batch_id: str, after: str = "") -> Generator[JsonObject]:
        """The ended turns of a batch, in order, as ``{custom_id, turn}``; only those after the turn ``after``."""
        return batch_results(self._http, self._patiently, batch_id, after)

    def cancel_batch(self, batch_id: str) -> JsonObject:
        """Ask the turns of a batch that have not ended to stop."""
        return self._send("POST", batch_path(batch_id, "/cancel"))

    def batches(self) -> Iterator[JsonObject]:
        """All batches, newest first, over as many pages as it takes."""
        return every(self.batches_page)

    def batches_page(self, **filters: Any) -> JsonObject:  # noqa: ANN401 - as above
        """One page of batches, as ``turns_page`` gives one of turns."""
        return self._send("GET", "/v1/batches", "data", params=query_of(filters))

    def ready(self) -> bool:
        """Whether the gateway says it can take turns; asked once, without patience.

        Raises:
            RequestRefused: It says something else: it may be another server.
        """
        try:
            self._http.send("GET", "/readyz", "status")
        except RequestRefused as refused:
            if refused.code != "not_ready":
                raise
            return False
        return True

    def _answer(self, turn_id: str, **said: object) -> JsonObject:
        return self._send("POST", turn_path(turn_id, "/inputs"), json=body_with(said))

    def _post(
        self, path: str, body: JsonObject, idempotency_key: str | None, wait_s: float, traceparent: str | None
    ) -> JsonObject:
        wait_s = min(wait_s, LONGEST_WAIT_S)
        headers = posting_headers(idempotency_key, wait_s, traceparent)
        timeout = httpx2.Timeout(self._http.timeout_s, read=self._http.timeout_s + wait_s)
        return self._send("POST", path, json=body_with(body), headers=headers, timeout=timeout)

    def _send(self, method: str, path: str, member: str = "id", **options: Any) -> JsonObject:  # noqa: ANN401 - httpx2's
        return self._patiently(partial(self._http.send, method, path, member, **options))


def batch_has_ended(batch: Mapping[str, Any]) -> bool:
    """Whether all turns of a batch have ended."""
    return batch["status"] == "ended"


def _rests(turn: Mapping[str, Any]) -> bool:
    """Whether nothing happens to a turn until somebody else acts, as far as ``Prefer: wait`` waits."""
    return has_ended(turn) or turn["status"] == TurnStatus.REQUIRES_ACTION or bool(turn.get("subagent_actions"))
