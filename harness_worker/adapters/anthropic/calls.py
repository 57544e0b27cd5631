"""A model call that runs on its own thread, so that its caller can stop waiting at any moment."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx2
from anthropic import APIConnectionError, APIStatusError, BaseModel

from harness_worker.adapters.anthropic.connections import CONNECT_TIMEOUT_S, Checkout, ConnectionPool
from harness_worker.adapters.anthropic.failures import (
    told_by_connection,
    told_by_event,
    told_by_no_events,
    told_by_status,
)
from harness_worker.adapters.anthropic.silence import Silence
from harness_worker.errors import InvariantError, TransientError
from harness_worker.ports import StopSignal

LAST_EVENT: Final = "message_stop"
"""The last event of a reply, even if the connection stays open."""

ENDING_S: Final = 0.5
"""How long the stream may take to end after its last event, in seconds; it mostly ends in the same packet."""

POLL_S: Final = 0.1
"""How often a silent call checks whether it must stop, in seconds."""

Event = Mapping[str, Any]


class CallStopped(Exception):  # noqa: N818 - reads as what it says
    """The call was told to stop, and its connection was cut."""


class Call:
    """One streamed model call.

    Args:
        pool: Connections to the provider.
        body: The request's body.
        timeout_s: How long the whole call may take, in seconds.
        stop: Set when the call must be given up.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        body: Mapping[str, Any],
        *,
        timeout_s: float,
        stop: StopSignal,
        clock: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._body = body
        self._timeout_s = timeout_s
        self._stop = stop
        self._clock = clock
        self._silence = Silence(clock)
        self._arrived: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()

    def events(self) -> Generator[Event]:
        """The stream's events as they come. Leaving early cuts the connection.

        Raises:
            CallStopped: The stop signal was set.
            TransientError: The time is over, nothing came for too long, the system refused a thread, or the provider or
                the connection failed in a way that may pass.
            ModelError: The provider refused the request.
        """
        checkout = Checkout(self._pool, self._pool.take())
        deadline_s = self._clock() + self._timeout_s
        self._begin(checkout)
        try:
            while (event := self._next(deadline_s)) is not None:
                yield event
                if event.get("type") == LAST_EVENT:
                    self._let_end(checkout)
                    return
        except BaseException:
            checkout.cut()
            raise

    def _let_end(self, checkout: Checkout) -> None:
        """Cut the connection if the stream does not end soon; its thread would read for as long as anything is sent."""
        until_s = self._clock() + ENDING_S
        while (left_s := until_s - self._clock()) > 0:
            with suppress(queue.Empty):
                if not isinstance(self._arrived.get(timeout=left_s), Mapping):
                    return
        checkout.cut()

    def _begin(self, checkout: Checkout) -> None:
        try:
            threading.Thread(target=self._run, args=(checkout,), name="model-call", daemon=True).start()
        except RuntimeError as error:
            checkout.end(whole=True)
            raise TransientError(f"the model cannot be asked now: {error}") from error

    def _next(self, deadline_s: float) -> Event | None:
        while True:
            if self._stop.is_set():
                raise CallStopped
            left_s = deadline_s - self._clock()
            if left_s <= 0:
                raise TransientError(f"the model did not answer within {self._timeout_s:g} s")
            try:
                arrived = self._arrived.get(timeout=min(POLL_S, left_s))
            except queue.Empty:
                self._silence.check()
                continue
            if isinstance(arrived, Exception):
                raise arrived
            return arrived

    def _run(self, checkout: Checkout) -> None:
        ended: Exception | None = InvariantError("the thread that reads the model's stream failed")
        try:
            ended = self._ended(checkout)
            checkout.end(whole=ended is None)
        finally:
            self._arrived.put(ended)  # whatever happened: the caller waits for it

    def _ended(self, checkout: Checkout) -> Exception | None:
        """Read the stream to its end, and return the error for the caller to raise, if there was one."""
        try:
            return self._failure(checkout)
        except Exception as error:  # noqa: BLE001 - handed over: the caller raises it
            return error

    def _failure(self, checkout: Checkout) -> Exception | None:
        try:
            self._stream(checkout)
        except APIStatusError as error:
            return told_by_status(error)
        except (APIConnectionError, httpx2.HTTPError, httpx2.StreamError) as error:
            return told_by_connection(error)
        return None

    def _stream(self, checkout: Checkout) -> None:
        timeout = httpx2.Timeout(self._timeout_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s))
        with checkout.connection.client.messages.create(**self._body, stream=True, timeout=timeout) as stream:
            self._silence.response = stream.response
            key, event = checkout.connection.client.api_key or "", None
            try:
                for event in stream:
                    sent = _as_json(event)
                    if sent.get("type") == "error":
                        raise told_by_event(sent, key=key)
                    self._arrived.put(sent)
            except (ValueError, RecursionError) as error:  # invalid JSON or UTF-8
                raise TransientError(f"the model's stream cannot be read: {error}") from error
            if event is None:
                raise told_by_no_events(stream.response, key=key)


def _as_json(event: object) -> Event:
    """The event as it was sent; the SDK passes on any JSON.

    Raises:
        ValueError: It is not an object. The message does not quote it: it may be long, and a proxy may repeat the key.
    """
    if not isinstance(event, BaseModel):
        raise ValueError(f"JSON of type {type(event).__name__} is no event")  # noqa: TRY004 - like the SDK's own, for what cannot be read
    return event.to_dict(mode="json", warnings=False)
