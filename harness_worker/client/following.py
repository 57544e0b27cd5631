"""A turn's events as they come, each once and in order, through the gateway's restarts."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from harness_worker.client.client import GatewayClient, RequestRefused, StackUnreachable
from harness_worker.client.patience import PatientGateway, is_passing
from harness_worker.wire import TERMINAL_EVENTS, JsonObject, has_ended

if TYPE_CHECKING:
    from harness_worker.ports import Clock

AGAIN_S: Final = 0.1
SELDOM_S: Final = 1.0
"""Seconds between two requests for a turn's events: at first, and while nothing new comes."""


def follow(client: GatewayClient, clock: Clock, turn_id: str, after: int = 0) -> Iterator[JsonObject]:
    """Every durable event of a turn above ``after``, until its last, and live hints, which are never repeated.

    Args:
        client: The gateway; one that does not stream is polled.
        clock: For waiting.
        turn_id: The turn.
        after: The ``seq`` of the last event that is already known.

    Raises:
        StackUnreachable: The gateway went away and did not come back in time.
        RequestRefused: The gateway does not know the turn, or refuses to show it.
    """
    gateway, pause_s = PatientGateway(client, clock), AGAIN_S
    while True:
        known = after
        try:
            for event in client.live_events(turn_id, after):
                after = event.get("seq", after)
                yield event
                if event["type"] in TERMINAL_EVENTS:
                    return
            if _is_over(client, turn_id, after):
                return
        except (StackUnreachable, RequestRefused) as refused:
            if not is_passing(refused):
                raise
            clock.wait(refused.retry_after_s or 0.0)
            gateway.turn(turn_id)
        pause_s = AGAIN_S if after > known else min(SELDOM_S, pause_s * 2)
        clock.wait(pause_s)


def is_hint(event: JsonObject) -> bool:
    """Whether an event is only sent live: it has no ``seq``, and is not in the journal."""
    return "seq" not in event


def _is_over(client: GatewayClient, turn_id: str, after: int) -> bool:
    return has_ended(client.turn(turn_id)) and not client.events(turn_id, after)["data"]


class EventFeed:
    """Follows a turn, with its live hints, on a thread, while the caller draws. A context manager.

    Args:
        client: The gateway.
        clock: For waiting.
        turn_id: The turn.
    """

    def __init__(self, client: GatewayClient, clock: Clock, turn_id: str) -> None:
        self._source = follow(client, clock, turn_id)
        self._left = threading.Event()
        self._queue: queue.SimpleQueue[JsonObject | Exception] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="events", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()

    def ready(self, timeout_s: float) -> list[JsonObject]:
        """The events that have come since the last call; waits for the first of them.

        Raises:
            HarnessError: Following failed; see :func:`follow`.
        """
        events: list[JsonObject] = []
        try:
            events.append(self._taken(timeout_s))
            while not self._queue.empty():
                events.append(self._taken(0.0))
        except queue.Empty:
            pass
        return events

    def _taken(self, timeout_s: float) -> JsonObject:
        found = self._queue.get(timeout=timeout_s)
        if isinstance(found, Exception):
            raise found
        return found

    def _read(self) -> None:
        try:
            for event in self._source:
                self._queue.put(event)
                if self._left.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - never raises: whoever takes events gets it
            self._queue.put(error)
