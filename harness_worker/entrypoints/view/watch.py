"""Following one turn to its end by reading its events, and drawing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness_worker.entrypoints.client import GatewayClient, StackUnreachable
from harness_worker.entrypoints.view.progress import Progress, fold
from harness_worker.entrypoints.view.screen import Screen
from harness_worker.ports import Clock

POLL_S: Final = 0.1
GATEWAY_GONE_S: Final = 20.0
"""A gateway that dies is started again by its stack; how long to believe that."""

JsonObject = dict[str, Any]


class Watcher:
    """Follows turns on one gateway.

    Args:
        client: The gateway.
        clock: Time.
    """

    def __init__(self, client: GatewayClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def follow(self, turn_id: str, screen: Screen, on_event: Callable[[JsonObject], None] | None = None) -> JsonObject:
        """Draw a turn until it ends, and return it as it then is.

        Args:
            turn_id: Which turn.
            screen: Where to draw it.
            on_event: Told each event once, in order.

        Raises:
            StackUnreachable: The gateway went away and did not come back within 20 s.
            RequestRefused: The gateway does not know the turn, or refuses to show it.
        """
        progress, calls, after = Progress(), list[JsonObject](), 0
        while progress.end is None:
            events = self._read(turn_id, after)
            for event in events:
                progress, after = fold(progress, event), event["seq"]
                if on_event is not None:
                    on_event(event)
            if any(map(_tells_of_calls, events)):
                calls = self._client.turn(turn_id)["calls"]
            screen.show(progress, calls)
            if not events:
                self._clock.wait(POLL_S)
        return self._client.turn(turn_id)

    def _read(self, turn_id: str, after: int) -> list[JsonObject]:
        give_up_at = self._clock.monotonic() + GATEWAY_GONE_S
        while True:
            try:
                return list(self._client.new_events(turn_id, after))
            except StackUnreachable:
                if self._clock.monotonic() >= give_up_at:
                    raise
                self._clock.wait(POLL_S * 5)


def _tells_of_calls(event: JsonObject) -> bool:
    """Whether only the turn itself says the rest: running calls' tools, and what a failed call told the model."""
    return event["type"] == "wave.started" or (event["type"] == "tool.completed" and event["data"]["is_error"])
