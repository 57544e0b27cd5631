"""Asking a gateway again while that helps: how long, how often, and when not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from harness_worker.client.client import GatewayClient, RequestRefused, StackUnreachable
from harness_worker.client.patience import AWAY_S
from harness_worker.client.polling import MAX_INTERVAL_S, poll
from harness_worker.wire import has_ended
from tests.unit.client_kit import client_given
from tests.unit.engine_kit import SetClock


def refusal(status: int, code: str, retry_after: str | None = None) -> httpx2.Response:
    """What a gateway, or a proxy before it, refuses with."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx2.Response(status, json={"status": status, "code": code, "title": "no"}, headers=headers)


TURN = httpx2.Response(200, json={"id": "t1", "status": "completed"})
DOWN = httpx2.ConnectError("refused")


@pytest.mark.parametrize(
    "passing",
    [
        DOWN,
        refusal(503, "not_ready"),
        refusal(429, "queue_full", "0"),
        refusal(429, "rate_limited", "0"),
        httpx2.Response(429, text="<html>"),
        refusal(409, "idempotency_in_flight"),
        httpx2.Response(502, text="<html>"),
    ],
)
def test_what_may_pass_is_asked_again(passing: httpx2.Response | Exception) -> None:
    """A gateway that restarts, waits for its database or is busy answers in the end."""
    clock = SetClock(0.0)
    client = client_given(passing, passing, TURN)
    assert client.with_patience(clock=clock).turn("t1")["id"] == "t1"
    assert clock.waits == [0.25, 0.5]


@pytest.mark.parametrize(("asked", "waited"), [("7", 7.0), ("0", 0.25), ("soon", 0.25), ("٣", 0.25)])
def test_retry_after_is_kept(asked: str, waited: float) -> None:
    """Whole seconds as the gateway names them, but never a hot loop; what is no number says nothing."""
    clock = SetClock(0.0)
    headers = [(b"Retry-After", asked.encode())]
    client = client_given(httpx2.Response(503, json={"code": "not_ready", "title": "no"}, headers=headers), TURN)
    client.with_patience(clock=clock).turn("t1")
    assert clock.waits == [waited]


@pytest.mark.parametrize(
    ("answer", "bound_s", "error"),
    [(DOWN, AWAY_S, StackUnreachable), (refusal(429, "queue_full", "3600"), 600.0, RequestRefused)],
)
def test_patience_ends(answer: httpx2.Response | Exception, bound_s: float, error: type[Exception]) -> None:
    """Each kind has its bound, whatever a Retry-After asks for; then it is what was refused last."""
    clock, client = SetClock(0.0), client_given(answer)
    with pytest.raises(error):
        client.with_patience(busy_s=600.0, clock=clock).turn("t1")
    assert clock.now_s == pytest.approx(bound_s)


def test_gateway_that_restarts_while_its_queue_is_full_is_waited_for() -> None:
    """However long ago it said for the first time that it is busy; and no longer than any other that is away."""
    clock, full = SetClock(0.0), refusal(429, "queue_full", "100")
    client = client_given(full, DOWN, DOWN, full, DOWN, TURN)
    assert client.with_patience(busy_s=600.0, clock=clock).turn("t1")["id"] == "t1"
    began, staying_away = clock.now_s, client_given(full, DOWN).with_patience(busy_s=600.0, clock=clock)
    with pytest.raises(StackUnreachable):
        staying_away.turn("t1")
    assert clock.now_s - began == pytest.approx(100 + AWAY_S)


def test_gateway_that_is_not_ready_when_it_is_back_is_waited_for() -> None:
    """By whoever has less patience with a busy one; and altogether no longer than the longer of both times."""
    clock, starting = SetClock(0.0), refusal(503, "not_ready", "5")
    client = client_given(*[DOWN] * 20, starting, starting, TURN).with_patience(600, busy_s=10, clock=clock)
    assert client.turn("t1")["id"] == "t1"
    changing = [DOWN, *[refusal(503, "not_ready", "1")] * 2] * 100
    began = clock.now_s
    with pytest.raises((StackUnreachable, RequestRefused)):
        client_given(*changing).with_patience(60, busy_s=10, clock=clock).turn("t1")
    assert clock.now_s - began == pytest.approx(60)


@pytest.mark.parametrize("answers", [(DOWN, refusal(503, "not_ready", "20")), (refusal(503, "not_ready", "20"), DOWN)])
def test_patience_is_one_for_failures_of_both_kinds(answers: tuple[httpx2.Response | Exception, ...]) -> None:
    """A gateway that answers meanwhile is not waited for twice as long."""
    clock = SetClock(0.0)
    with pytest.raises((StackUnreachable, RequestRefused)):
        client_given(*answers).with_patience(clock=clock).turn("t1")
    assert clock.now_s == pytest.approx(AWAY_S)


@pytest.mark.parametrize(("status", "code"), [(404, "unknown_agent"), (429, "queue_full"), (429, "rate_limited")])
def test_a_refusal_for_good_is_told_at_once(status: int, code: str) -> None:
    """Nothing is gained by asking again; a limit that names no time is one into which the request never fits."""
    clock, client = SetClock(0.0), client_given(refusal(status, code))
    with pytest.raises(RequestRefused, match=code):
        client.with_patience(clock=clock).turn("t1")
    assert clock.waits == []


def test_turns_are_all_that_there_are() -> None:
    """A page may be short, for it is bounded in bytes too: only ``next`` says whether it is the last."""
    pages = [{"data": [{"id": "t2"}], "next": "n"}, {"data": [{"id": "t1"}], "next": None}]
    answers = [httpx2.Response(200, json=page) for page in pages]
    asking = client_given(answers[0], DOWN, answers[1], DOWN).with_patience(clock=SetClock(0.0))
    assert [turn["id"] for turn in asking.turns(session_id="s")] == ["t2", "t1"]


def looks(*statuses: str) -> Iterator[dict[str, Any]]:
    """A turn, look by look; the last status for ever."""
    yield from ({"status": status} for status in statuses[:-1])
    while True:
        yield {"status": statuses[-1]}


def test_poll_looks_ever_more_rarely() -> None:
    """A short turn is seen to end at once, a long one costs few requests; then its time is over."""
    clock = SetClock(0.0)
    turn = looks("queued", "running", "completed")
    assert has_ended(poll(lambda: next(turn), has_ended, 60, clock))
    assert clock.waits == [0.25, 0.25]
    stuck = looks("running")
    assert not has_ended(poll(lambda: next(stuck), has_ended, 60, clock))
    assert max(clock.waits) == MAX_INTERVAL_S


@pytest.mark.parametrize("most_s", [0.1, 1.1, 61.0])
def test_poll_looks_for_the_last_time_when_its_time_is_over(most_s: float) -> None:
    """Not before, and no later."""
    clock = SetClock(0.0)
    poll(lambda: {"status": "running"}, has_ended, most_s, clock)
    assert clock.now_s == pytest.approx(most_s)


def test_patience_begins_with_the_first_failure() -> None:
    """A post that waits for its turn may be cut off late; it is no less sent again, with the key that it had."""
    clock, keys = SetClock(0.0), list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            clock.now_s += 55.0
            raise httpx2.ReadError("cut")
        return TURN

    client = GatewayClient("http://gateway", transport=httpx2.MockTransport(answer)).with_patience(clock=clock)
    assert client.create_turn("a", "hi", wait_s=60)["id"] == "t1"
    assert len(keys) == 2
    assert len(set(keys)) == 1
    client.create_turn("a", "hi")
    assert len(set(keys)) == 2


@pytest.mark.parametrize("answer", [DOWN, refusal(503, "not_ready", "1"), refusal(429, "rate_limited", "1")])
def test_client_without_patience_asks_once(answer: httpx2.Response | Exception) -> None:
    """Whoever must answer soon is told at once, also about events and results."""
    clock = SetClock(0.0)
    client = client_given(answer).with_patience(0, clock=clock)
    for ask in (client.turn, client.events, client.batch_results):
        with pytest.raises((StackUnreachable, RequestRefused)):
            list(ask("1"))
    assert clock.waits == []


def test_wait_ends_when_the_turn_rests() -> None:
    """A turn that needs a person, itself or below it, would otherwise be waited for in vain; or it is, if wanted."""
    statuses = ("running", "requires_action", "requires_action", "completed")
    below = {"id": "t1", "status": "running", "subagent_actions": [{"call_id": "0.0"}]}
    answers = [httpx2.Response(200, json={"id": "t1", "status": status}) for status in statuses]
    client = client_given(*answers).with_patience(clock=SetClock(0.0))
    assert client.wait("t1", 60)["status"] == "requires_action"
    assert client.wait("t1", 60, past_approvals=True)["status"] == "completed"
    asking = client_given(httpx2.Response(200, json=below)).with_patience(clock=SetClock(0.0))
    assert asking.wait("t1", 60) == below
    assert client_given(answers[0]).with_patience(clock=SetClock(0.0)).wait("t1", 60)["status"] == "running"
