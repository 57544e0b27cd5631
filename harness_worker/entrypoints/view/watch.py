"""Follows one turn to its end, and draws it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from harness_worker.client.client import GatewayClient
from harness_worker.client.following import is_hint
from harness_worker.entrypoints.view.event_feed import EventFeed
from harness_worker.entrypoints.view.progress import Progress, fold
from harness_worker.entrypoints.view.questions import asked_of
from harness_worker.entrypoints.view.screen import Screen
from harness_worker.wire import WAITING_EVENTS, JsonObject

if TYPE_CHECKING:
    from harness_worker.ports import Clock

TICK_S: Final = 0.1
"""How often the screen is redrawn while nothing happens, in seconds."""


class Watcher:
    """Follows turns on one gateway.

    Args:
        client: The gateway.
        clock: For waiting.
        on_waiting: Called whenever a turn, or one below it, waits for a person; the screen rests meanwhile.
    """

    def __init__(
        self,
        client: GatewayClient,
        clock: Clock,
        on_waiting: Callable[[GatewayClient, JsonObject], None] | None = None,
    ) -> None:
        self._client = client
        self._gateway = client.with_patience(clock=clock)
        self._on_waiting = on_waiting

    def follow(self, turn_id: str, screen: Screen, on_event: Callable[[JsonObject], None] | None = None) -> JsonObject:
        """Draw a turn until it ends, and return it.

        Args:
            turn_id: The turn.
            screen: Where to draw it.
            on_event: Receives each durable event once, in order; the screen rests meanwhile.

        Raises:
            StackUnreachable: The gateway went away and did not come back in time.
            RequestRefused: The gateway does not know the turn, or refuses to show it.
        """
        progress, calls = Progress(), list[JsonObject]()
        with EventFeed(self._gateway.events(turn_id)) as feed:
            while progress.end is None:
                events = feed.ready(TICK_S)
                for event in events:
                    progress = fold(progress, event)
                    if on_event is not None and not is_hint(event):
                        with screen.resting():  # else the screen takes what goes to stdout for its own
                            on_event(event)
                if any(map(_tells_of_calls, events)):
                    calls = self._gateway.turn(turn_id)["calls"]
                screen.show(progress, calls)
                if any(event["type"] in WAITING_EVENTS for event in events):
                    self._let_answer(turn_id, screen)
        return self._gateway.turn(turn_id)

    def _let_answer(self, turn_id: str, screen: Screen) -> None:
        turn = self._gateway.turn(turn_id)
        if self._on_waiting is not None and asked_of(turn):
            with screen.resting():
                self._on_waiting(self._client, turn)


def _tells_of_calls(event: JsonObject) -> bool:
    """Whether only the turn itself has the details: running calls' tools, and what the model was told of failures."""
    return event["type"] == "wave.started" or (event["type"] == "tool.completed" and event["data"]["is_error"])
