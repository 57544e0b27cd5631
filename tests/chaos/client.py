"""Posts turns to a fleet in a storm, a few in flight at a time, and records each as it was when it ended."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import httpx2

from tests.chaos.judge import Ended

FINAL: Final = ("completed", "incomplete", "failed", "cancelled")
LOOK_S: Final = 0.25
SLOW_SHARE: Final = 0.05
MOST_EVENTS: Final = 1_000
UNAVAILABLE: Final = 503


class Client:
    """A client that knows only HTTP.

    Args:
        url: The gateway's URL.
        seed: Decides which turns are slow.
        in_flight: How many turns run at the same time.
    """

    def __init__(self, url: str, *, seed: int, in_flight: int) -> None:
        self._http = httpx2.Client(base_url=url, timeout=30, trust_env=False)
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._in_flight = in_flight
        self._running: list[str] = []
        self.posted = 0
        self.ended: list[Ended] = []

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def post_while(self, goes_on: Callable[[], bool]) -> None:
        """Keep turns in flight for as long as ``goes_on`` returns ``True``."""
        while goes_on():
            while len(self._running) < self._in_flight and goes_on():
                self._post()
            self._collect()

    def await_all(self, timeout_s: float) -> list[str]:
        """Wait until every turn has ended, or for ``timeout_s`` seconds; return the ids of those that have not."""
        until = time.monotonic() + timeout_s
        while self._running and time.monotonic() < until:
            self._collect()
        return self._running

    def look_again(self) -> list[Ended]:
        """Read every turn that ended once more, as it is now."""
        again = [self._ended(self._turn(each.turn["id"])) for each in self.ended]
        return [each for each in again if each is not None]

    def _post(self) -> None:
        script = "slow" if self._chance.random() < SLOW_SHARE else "default"
        body = {"agent": "stormy", "input": "go", "metadata": {"script": script}}
        told = self._said(self._http.post("/v1/turns", json=body))
        if told is None:
            threading.Event().wait(LOOK_S)
            return
        self.posted += 1
        self._running.append(told["id"])

    def _collect(self) -> None:
        threading.Event().wait(LOOK_S)
        for turn_id in tuple(self._running):
            turn = self._turn(turn_id)
            ended = self._ended(turn) if turn is not None and turn["status"] in FINAL else None
            if ended is not None:
                self._running.remove(turn_id)
                self.ended.append(ended)

    def _ended(self, turn: dict[str, Any] | None) -> Ended | None:
        if turn is None:
            return None
        events = self._said(self._http.get(f"/v1/turns/{turn['id']}/events", params={"limit": MOST_EVENTS}))
        return None if events is None else Ended(turn=turn, events=events["data"])

    def _turn(self, turn_id: str) -> dict[str, Any] | None:
        return self._said(self._http.get(f"/v1/turns/{turn_id}", params={"include": "messages"}))

    def _said(self, answer: httpx2.Response) -> dict[str, Any] | None:
        """The body of the gateway's answer; ``None`` while its database does not respond."""
        if answer.status_code == UNAVAILABLE:
            return None
        answer.raise_for_status()
        return answer.json()
