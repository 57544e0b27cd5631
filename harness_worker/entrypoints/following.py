"""A turn's events as they come, each once and in order, through the gateway's restarts."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from harness_worker.entrypoints.client import GatewayClient, JsonObject, StackUnreachable
from harness_worker.ports import Clock
from harness_worker.wire import FINAL_STATUSES, TERMINAL_EVENTS

AGAIN_S: Final = 0.1
GATEWAY_GONE_S: Final = 40.0
"""A gateway that dies is started again by its stack; how long to believe that."""


def turn_patiently(client: GatewayClient, clock: Clock, turn_id: str) -> JsonObject:
    """A turn as it is now, also from a gateway that is just being started again.

    Raises:
        StackUnreachable: It did not come back within ``GATEWAY_GONE_S``.
        RequestRefused: It does not know the turn, or refuses to show it.
    """
    give_up_at = clock.monotonic() + GATEWAY_GONE_S
    while True:
        try:
            return client.turn(turn_id)
        except StackUnreachable:
            if clock.monotonic() >= give_up_at:
                raise
        clock.wait(AGAIN_S)


def follow(
    client: GatewayClient, clock: Clock, turn_id: str, after: int = 0, *, hints: bool = False
) -> Iterator[JsonObject]:
    """Every durable event of a turn above ``after``, until its last.

    Args:
        client: The gateway; one that streams is listened to, another is asked again and again.
        clock: Time.
        turn_id: Which turn.
        after: The ``seq`` of the last event that is known already.
        hints: Also give live hints, which have no ``seq``, come at any time, and are never repeated.

    Raises:
        StackUnreachable: The gateway went away and did not come back within ``GATEWAY_GONE_S``.
        RequestRefused: The gateway does not know the turn, or refuses to show it.
    """
    while True:
        try:
            for event in client.live_events(turn_id, after):
                if is_hint(event):
                    if hints:
                        yield event
                    continue
                after = event["seq"]
                yield event
                if event["type"] in TERMINAL_EVENTS:
                    return
            if _is_over(client, turn_id, after):
                return
        except StackUnreachable:
            turn_patiently(client, clock, turn_id)
        clock.wait(AGAIN_S)


def is_hint(event: JsonObject) -> bool:
    """Whether an event was only told live, and is in no log."""
    return "seq" not in event


def _is_over(client: GatewayClient, turn_id: str, after: int) -> bool:
    return client.turn(turn_id)["status"] in FINAL_STATUSES and not client.events(turn_id, after)["data"]


class EventFeed:
    """Follows a turn with its live hints in a thread, for somebody who draws meanwhile. A context manager.

    Args:
        client: The gateway.
        clock: Time.
        turn_id: Which turn.
    """

    def __init__(self, client: GatewayClient, clock: Clock, turn_id: str) -> None:
        self._source = follow(client, clock, turn_id, hints=True)
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
        """The events that have come since the last time; waits for the first of them.

        Raises:
            HarnessError: The following failed, see :func:`follow`.
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
        except Exception as error:  # noqa: BLE001 - never raises: whoever asks for events is told
            self._queue.put(error)
