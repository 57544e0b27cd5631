"""Following a turn: each durable event once and in order, whatever happens to the stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from harness_worker.client.client import (
    GatewayClient,
    RequestRefused,
    StackUnreachable,
)
from harness_worker.client.following import is_hint
from harness_worker.client.patience import AWAY_S
from harness_worker.entrypoints.cli.whole_ids import whole_id
from harness_worker.entrypoints.view.event_feed import EventFeed
from harness_worker.errors import ConfigError, TransientError
from harness_worker.urls import host_of, is_loopback
from harness_worker.wire import JsonObject
from tests.unit.engine_kit import SetClock

STREAM = {"content-type": "text/event-stream"}
LINES = {"content-type": "application/x-ndjson"}


class Cut(httpx2.SyncByteStream):
    """A stream that breaks off after some frames."""

    def __init__(self, *frames: str) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[bytes]:
        yield from (frame.encode() for frame in self._frames)
        raise httpx2.ReadError("cut")


def event(seq: int, kind: str = "step.started") -> dict[str, Any]:
    """A durable event."""
    return {"seq": seq, "type": kind, "data": {}}


def frame(document: dict[str, Any]) -> str:
    """An event in a stream."""
    return f"event: {document['type']}\nid: {document.get('seq')}\ndata: {json.dumps(document)}\n\n"


def gateway(*streams: httpx2.Response | Exception, status: str = "running") -> tuple[GatewayClient, list[str]]:
    """A gateway that answers each request for events with the next of ``streams``; and what was asked ``after``."""
    left, asked = list(streams), list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/events"):
            return httpx2.Response(200, json={"id": "t", "status": status})
        if "text/event-stream" not in request.headers["accept"]:
            return httpx2.Response(200, json={"data": [], "next": None})
        asked.append(request.url.params["after"])
        following = left.pop(0)
        if isinstance(following, Exception):
            raise following
        return following

    return GatewayClient("http://gateway", transport=httpx2.MockTransport(answer)), asked


def test_events_go_on_where_the_stream_was_cut() -> None:
    """A cut stream is asked for again after the last event; heartbeats are left out."""
    hint = frame({"type": "model.delta", "data": {}})
    client, asked = gateway(
        httpx2.Response(200, headers=STREAM, stream=Cut(": open\n\n", frame(event(1)), hint, frame(event(2)))),
        httpx2.ConnectError("down"),
        httpx2.Response(200, headers=STREAM, text=frame(event(3, "turn.completed"))),
    )
    assert [each["seq"] for each in client.with_patience(clock=SetClock(0.0)).events("t") if not is_hint(each)] == [
        1,
        2,
        3,
    ]
    assert asked == ["0", "2", "2"]


def test_event_within_which_a_proxy_ends_the_stream_is_asked_for_again() -> None:
    """To the client it looks like an end, not like an error."""
    whole = frame(event(2))
    texts = (frame(event(1)) + whole[:-9], whole[:-1], whole + frame(event(3, "turn.completed")))
    client, asked = gateway(*(httpx2.Response(200, headers=STREAM, text=text) for text in texts))
    assert [each["seq"] for each in client.with_patience(clock=SetClock(0.0)).events("t")] == [1, 2, 3]
    assert asked == ["0", "1", "1"]


def test_events_include_hints() -> None:
    """Who draws a turn sees its text while it is said; the place to go on from is the last durable event's."""
    hint = {"type": "model.delta", "data": {"text": "Hel"}}
    client, asked = gateway(
        httpx2.Response(200, headers=STREAM, stream=Cut(frame(event(1)), frame(hint))),
        httpx2.Response(200, headers=STREAM, text=frame(hint) + frame(event(2, "turn.completed"))),
    )
    told = list(client.with_patience(clock=SetClock(0.0)).events("t"))
    assert told == [event(1), hint, hint, event(2, "turn.completed")]
    assert asked == ["0", "1"]


def test_events_of_a_gateway_that_does_not_stream_are_polled() -> None:
    """Pages do as well."""
    client, asked = gateway(
        httpx2.Response(200, json={"data": [event(1)], "next": None}),
        httpx2.Response(200, json={"data": [], "next": None}),
        httpx2.Response(200, json={"data": [event(2, "turn.failed")], "next": None}),
    )
    assert [each["seq"] for each in client.with_patience(clock=SetClock(0.0)).events("t")] == [1, 2]
    assert asked == ["0", "1", "1"]


def test_events_are_asked_for_less_often_while_nothing_comes() -> None:
    """A proxy that does not stream is no reason to ask the gateway ten times a second; news make it ask soon again."""
    nothing = [httpx2.Response(200, json={"data": [], "next": None}) for _ in range(20)]
    news = httpx2.Response(200, json={"data": [event(1)], "next": None})
    last = httpx2.Response(200, json={"data": [event(2, "turn.failed")], "next": None})
    client, asked = gateway(*nothing, news, last)
    clock = SetClock(0.0)
    found = client.with_patience(clock=clock).events("t")
    assert next(found) == event(1)
    assert 10 < clock.now_s < 20
    began = clock.now_s
    assert list(found) == [event(2, "turn.failed")]
    assert clock.now_s - began <= 0.1 + 1e-9
    assert len(asked) == 22


def test_events_go_on_when_the_database_is_back() -> None:
    """A gateway that says when to ask again is asked then."""
    away = httpx2.Response(503, json={"code": "not_ready", "title": "Not ready"}, headers={"Retry-After": "7"})
    client, asked = gateway(away, httpx2.Response(200, headers=STREAM, text=frame(event(1, "turn.completed"))))
    clock = SetClock(0.0)
    assert list(client.with_patience(clock=clock).events("t")) == [event(1, "turn.completed")]
    assert asked == ["0", "0"]
    assert 7 <= clock.now_s < 8


def test_events_after_the_last_one_end() -> None:
    """A turn that is over, and nothing new: nothing to wait for."""
    client, _ = gateway(httpx2.Response(204), status="completed")
    assert list(client.with_patience(clock=SetClock(0.0)).events("t", after=9)) == []


def test_events_give_up_on_a_gateway_that_stays_away() -> None:
    """A restart is waited for, not more."""

    def down(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("down")

    clock = SetClock(0.0)
    client = GatewayClient("http://gateway", transport=httpx2.MockTransport(down))
    with pytest.raises(StackUnreachable):
        list(client.with_patience(clock=clock).events("t"))
    assert AWAY_S <= clock.now_s < AWAY_S + 1


@pytest.mark.parametrize("retry_after", ["0", "3600"])
def test_events_that_are_refused_for_too_long_are_given_up(retry_after: str) -> None:
    """However long the gateway asks to wait, and though it answers everything else."""
    headers = {"Retry-After": retry_after}
    busy = [httpx2.Response(503, json={"code": "not_ready", "title": "Not ready"}, headers=headers)] * 200
    client, _ = gateway(*busy)
    clock = SetClock(0.0)
    with pytest.raises(RequestRefused, match="not_ready"):
        list(client.with_patience(clock=clock).events("t"))
    assert clock.now_s == pytest.approx(AWAY_S)


def test_events_bear_any_number_of_cuts_between_which_something_comes() -> None:
    """A proxy may end every stream after a while; that is no outage."""
    cuts = [httpx2.Response(200, headers=STREAM, stream=Cut(frame(event(seq)))) for seq in range(1, 200)]
    client, _ = gateway(*cuts, httpx2.Response(200, headers=STREAM, text=frame(event(200, "turn.completed"))))
    clock = SetClock(0.0)
    assert [each["seq"] for each in client.with_patience(clock=clock).events("t")] == list(range(1, 201))
    assert clock.now_s > AWAY_S


@pytest.mark.parametrize("sign", [": heartbeat\n\n", frame({"type": "model.delta", "data": {}})])
def test_events_bear_restarts_of_a_gateway_while_nothing_happens(sign: str) -> None:
    """A stream on which signs of life came was no outage, though a long call or a wait for a person tells nothing."""
    clock = SetClock(0.0)

    class Standing(Cut):
        """Breaks off after a minute."""

        def __iter__(self) -> Iterator[bytes]:
            yield b": open\n\n"
            clock.now_s += 60
            yield from super().__iter__()

    quiet = [httpx2.Response(200, headers=STREAM, stream=Standing(sign)) for _ in range(5)]
    client, _ = gateway(*quiet, httpx2.Response(200, headers=STREAM, text=frame(event(1, "turn.completed"))))
    seqs = [each["seq"] for each in client.with_patience(clock=clock).events("t") if not is_hint(each)]
    assert seqs == [1]


def test_events_give_up_on_a_gateway_whose_streams_only_open() -> None:
    """A gateway that dies of each request is not asked for ever."""
    dying = [httpx2.Response(200, headers=STREAM, stream=Cut(": open\n\n")) for _ in range(100)]
    client, _ = gateway(*dying)
    clock = SetClock(0.0)
    with pytest.raises(StackUnreachable):
        list(client.with_patience(clock=clock).events("t"))
    assert clock.now_s == pytest.approx(AWAY_S)


def test_results_go_on_after_the_last_whole_line() -> None:
    """A cut between or within lines, or a gateway that is away, repeats and loses none."""
    lines = [json.dumps({"custom_id": name, "turn": {"id": name}}) + "\n" for name in "abcd"]
    answers: list[httpx2.Response | Exception] = [
        httpx2.Response(200, headers=LINES, stream=Cut(lines[0])),
        httpx2.ConnectError("down"),
        httpx2.Response(200, headers=LINES, text=lines[1] + lines[2][:-9]),
        httpx2.Response(200, headers=LINES, text=lines[2] + lines[3]),
    ]
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.params.get("after", ""))
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    client = GatewayClient("http://gateway", transport=httpx2.MockTransport(answer))
    found = client.with_patience(clock=SetClock(0.0)).batch_results("batch")
    assert [each["custom_id"] for each in found] == list("abcd")
    assert asked == ["", "a", "a", "b"]


def test_feed_hands_errors_on() -> None:
    """What goes wrong in the thread is raised to whoever reads."""
    refused = httpx2.Response(404, json={"code": "not_found", "title": "Not found", "status": 404})
    client, _ = gateway(refused)
    with EventFeed(client.events("t")) as feed, pytest.raises(RequestRefused):
        feed.ready(5.0)


def test_feed_hands_on_the_events_before_an_error() -> None:
    """What came before something went wrong is not lost with it, however close together they come."""

    def events() -> Iterator[JsonObject]:
        yield event(1)
        yield event(2)
        raise TransientError("the gateway went away")

    with EventFeed(events()) as feed:
        feed._thread.join(5.0)  # pyright: ignore[reportPrivateUsage]
        assert feed.ready(5.0) == [event(1), event(2)]
        with pytest.raises(TransientError):
            feed.ready(5.0)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("http://[::ffff:127.0.0.1]:1", True),
        ("http://localhost", True),
        ("http://10.0.0.1", False),
        ("https://gateway.example", False),
        ("http://[", False),
        ("nonsense", False),
    ],
)
def test_loopback_is_told_by_name_and_address(url: str, expected: bool) -> None:
    """Proxies are for other machines."""
    assert is_loopback(host_of(url)) is expected


WHOLE = "01a2009d-c002-700c-943b-6c00b58c8c1d"


def gateway_of(*ids: str, older: str = "") -> GatewayClient:
    """A gateway with these turns, one a page, and one that no page of the newest shows."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/v1/turns":
            turn_id = request.url.path.rpartition("/")[2]
            is_there = turn_id in {*ids, older}
            return httpx2.Response(200 if is_there else 404, json={"id": turn_id, "code": "not_found"})
        at = int(request.url.params.get("after", "0"))
        page = {"data": [{"id": ids[at]}], "next": str(at + 1) if at + 1 < len(ids) else None}
        return httpx2.Response(200, json=page)

    return GatewayClient("http://gateway", transport=httpx2.MockTransport(answer))


def test_whole_id_finds_the_one_turn_with_that_end() -> None:
    """One is found over pages, several are refused, a whole id is taken as it is."""
    client = gateway_of("01a2009d-c002-700c-943b-000000001111", WHOLE, "01a2009d-c002-700c-943b-222222221111")
    assert whole_id(client, "58c8c1d") == WHOLE
    assert whole_id(client, WHOLE) == WHOLE
    assert whole_id(client, "not hexadecimal") == "not hexadecimal"
    with pytest.raises(ConfigError, match="2 turns have ids"):
        whole_id(client, "1111")
    with pytest.raises(ConfigError, match="at least 4"):
        whole_id(client, "c1d")


@pytest.mark.parametrize("given", ["42", "1042"])
@pytest.mark.parametrize("others", [(), (WHOLE, "01a2009d-c002-700c-943b-000000001042")])
def test_whole_id_may_look_like_the_end_of_one(given: str, others: tuple[str, ...]) -> None:
    """Who submits a turn chooses its id, such as an order's number, and may ask for it when it is old."""
    assert whole_id(gateway_of(given, *others), given) == given
    assert whole_id(gateway_of("another", *others, older=given), given) == given
