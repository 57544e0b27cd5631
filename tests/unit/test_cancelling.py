"""Cancelling turns from the command line: their ends are waited for, through a gateway's restart."""

from __future__ import annotations

import httpx2
import pytest

from harness_worker.client.client import GatewayClient, StackUnreachable
from harness_worker.entrypoints.cli.turns.cancelling import Cancelled, cancel_open_turns, cancel_turns
from tests.unit.engine_kit import SetClock

DOWN = httpx2.ConnectError("refused")


class Stopping:
    """A gateway with turns: what each poll of a turn finds after its cancel, the last for ever.

    Args:
        away: How many cancels it does not answer after the first.
        **polls: What it finds, a turn each.
    """

    def __init__(self, away: int = 0, **polls: list[str | Exception]) -> None:
        self._polls = polls
        self._away = away
        self._cancelled: set[str] = set()
        self.asked = 0

    def client(self) -> GatewayClient:
        """Asks it."""
        return GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        turn_id, *cancel = request.url.path.removeprefix("/v1/turns/").split("/")
        if cancel and self._cancelled and self._away:
            self._away -= 1
            raise DOWN
        if cancel or turn_id not in self._cancelled:
            self._cancelled.update({turn_id} if cancel else ())
            return httpx2.Response(200, json={"id": turn_id, "status": "running"})
        polls = self._polls[turn_id]
        found = polls.pop(0) if len(polls) > 1 else polls[0]
        if isinstance(found, Exception):
            raise found
        return httpx2.Response(200, json={"id": turn_id, "status": found})


def down(_: httpx2.Request) -> httpx2.Response:
    """Nobody answers."""
    raise DOWN


def seen(cancelled: list[Cancelled]) -> list[str]:
    """Each turn's status in the end."""
    return [each.turn["status"] for each in cancelled]


def test_cancelled_turns_are_waited_for_through_a_restart() -> None:
    """A gateway that is away for a while is no reason to give up: the cancel is kept, and the end comes."""
    gateway = Stopping(a=["running", DOWN, DOWN, "cancelled"], b=[DOWN, "cancelled"])
    assert seen(cancel_turns(gateway.client(), SetClock(0.0), ["a", "b"], 60)) == ["cancelled", "cancelled"]


def test_all_are_cancelled_through_a_restart() -> None:
    """Otherwise some of them would be cancelled and nobody told which."""
    gateway = Stopping(away=2, a=["cancelled"], b=["cancelled"])
    assert seen(cancel_turns(gateway.client(), SetClock(0.0), ["a", "b"], 60)) == ["cancelled", "cancelled"]


def test_gateway_that_is_away_before_anything_is_cancelled_is_told_at_once() -> None:
    """Nothing has happened yet, and the address may be wrong."""
    clock, client = SetClock(0.0), GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(down))
    with pytest.raises(StackUnreachable):
        cancel_turns(client, clock, ["a"], 60)
    assert clock.now_s == 0


@pytest.mark.parametrize(("wait_s", "polls"), [(0, 2), (5, 30)])
def test_turns_that_do_not_end_are_polled_seldom_and_not_for_longer_than_asked(wait_s: float, polls: int) -> None:
    """All of them together have that time."""
    gateway, clock = Stopping(a=["running"], b=["running"]), SetClock(0.0)
    assert seen(cancel_turns(gateway.client(), clock, ["a", "b"], wait_s)) == ["running", "running"]
    assert clock.now_s < wait_s + 1
    assert gateway.asked - 4 <= polls


def test_all_open_turns_with_metadata_are_cancelled() -> None:
    """Page by page and each once, those that have not begun first; one that is answered meanwhile is found too."""
    pages = {
        ("queued", ""): (["q1", "q2"], "q2"),
        ("queued", "q2"): (["q3"], None),
        ("running", ""): (["r1", "q3"], None),
        ("requires_action", ""): (["a1"], None),
    }
    cancelled: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            cancelled.append(request.url.path.split("/")[3])
            return httpx2.Response(200, json={"id": cancelled[-1], "status": "cancelled"})
        assert request.url.params["metadata.sweep"] == "s"
        asked = request.url.params["status"], request.url.params.get("after", "")
        ids, after = pages[asked]
        if asked == ("requires_action", ""):
            pages["running", ""] = (["r1", "was-approved"], None)
        return httpx2.Response(200, json={"data": [{"id": turn_id} for turn_id in ids], "next": after})

    client = GatewayClient("http://gateway", patience_s=0, transport=httpx2.MockTransport(answer))
    ended = cancel_open_turns(client, SetClock(0.0), {"sweep": "s"}, 60)
    assert cancelled == ["q1", "q2", "q3", "r1", "a1", "was-approved"]
    assert [each.was_over for each in ended] == [False] * 6
