"""Server-sent events: a stream gives all events once and in order, live, can be resumed, and always ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from api_gateway.concurrency.coalescing import Gathered
from api_gateway.database import create_engine
from api_gateway.requests.places import scan_places
from api_gateway.requests.queries import EventsQuery
from api_gateway.streams import event_stream
from api_gateway.streams.event_stream import EventStream, Position
from api_gateway.streams.live import LiveEvents
from api_gateway.turns.answers import EventPage
from api_gateway.turns.heads import Head, read_heads
from api_gateway.turns.store import Turns
from harness_worker.testing.waiting import wait_until
from harness_worker.wire import DEFAULT_TENANT, EVENT_STREAM
from tests.integration.gateway_kit import NOWHERE, Gateway, frames_of, gateway_on, problem_of
from tests.relay import Relay

SSE = {"Accept": "text/event-stream"}

pytestmark = pytest.mark.gateway(sse_heartbeat_s=0.2)


class Listener:
    """A client that reads a stream to its end, in a thread."""

    def __init__(self, gateway: Gateway, turn_id: str, pool: ThreadPoolExecutor, **headers: str) -> None:
        self.lines: list[str] = []
        self._url = f"{gateway.url}/v1/turns/{turn_id}/events"
        self._headers = {**SSE, **headers}
        self._reading = pool.submit(self._read)

    def _read(self) -> None:
        with httpx2.stream("GET", self._url, headers=self._headers, timeout=60) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            # Heartbeats come for ever: a test that fails must not leave this thread behind.
            until = time.monotonic() + 60
            for line in response.iter_lines():
                self.lines.append(line)
                assert time.monotonic() < until, "no event came, and no end"
                until = until if line in ("", ": heartbeat") else time.monotonic() + 60

    def until(self, text: str) -> None:
        """Wait for a line that holds ``text``."""
        wait_until(lambda: any(text in line for line in list(self.lines)), f"{text} in the stream")

    def events(self) -> list[dict[str, str]]:
        """Every event, once the stream has ended."""
        self._reading.result(60)
        return frames_of(self.lines)


Listen = Callable[..., Listener]


@pytest.fixture
def listen(gateway: Gateway) -> Generator[Listen]:
    """Starts listeners."""
    with ThreadPoolExecutor(4) as pool:

        def start(turn_id: str, **headers: str) -> Listener:
            return Listener(gateway, turn_id, pool, **headers)

        yield start


def seqs(events: list[dict[str, str]]) -> list[str]:
    """The ids in order."""
    return [event["id"] for event in events if "id" in event]


def test_stream_may_be_asked_for_on_any_line_of_accept(gateway: Gateway) -> None:
    """Several ``Accept`` lines are one list (RFC 9110, section 5.3)."""
    turn_id = gateway.posted()["id"]
    gateway.worker.finish(turn_id)
    lines = [("Accept", "text/html"), ("Accept", "text/event-stream")]
    told = gateway.http.get(f"/v1/turns/{turn_id}/events", headers=lines)
    assert told.headers["content-type"].startswith("text/event-stream")


def test_stream_gives_past_and_present_once_and_ends(gateway: Gateway, listen: Listen) -> None:
    """Past events come from SQL and new ones live, each once and in order, the terminal event last."""
    turn_id = gateway.posted()["id"]
    gateway.worker.event(turn_id, "step.started", step=0, text="größe\nzwei")
    listener = listen(turn_id)
    listener.until("step.started")
    gateway.worker.event(turn_id, "step.completed", step=0)
    gateway.worker.finish(turn_id)
    events = listener.events()
    assert seqs(events) == ["1", "2", "3", "4"]
    kinds = ["turn.queued", "step.started", "step.completed", "turn.completed"]
    assert [event["event"] for event in events] == kinds
    page = gateway.http.get(f"/v1/turns/{turn_id}/events").json()["data"]
    assert [json.loads(event["data"]) for event in events] == page
    assert "größe" in events[1]["data"]


def test_stream_of_text_with_unicodes_line_breaks_is_not_split(gateway: Gateway, listen: Listen) -> None:
    """Events escape U+0085, U+2028 and U+2029, at which readers such as httpx2's would end a line."""
    text = "one\u2028two\u2029three\u0085four größe"
    turn_id = gateway.posted()["id"]
    gateway.worker.event(turn_id, "step.started", step=0, text=text)
    listener = listen(turn_id)
    listener.until("step.started")
    gateway.worker.event(turn_id, "model.completed", step=0, text=text)
    gateway.worker.send(turn_id, "model.delta", None, text=text)
    listener.until("model.delta")
    gateway.worker.finish(turn_id)
    told = [json.loads(event["data"]) for event in listener.events()]
    assert [event["data"].get("text") for event in told[1:4]] == [text] * 3
    assert any("größe" in line for line in listener.lines)


def test_stream_passes_hints_on_without_id(gateway: Gateway, listen: Listen) -> None:
    """Hints have neither id nor seq, and are not stored."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("turn.queued")
    wait_until(lambda: _hinted(gateway, listener, turn_id), "a hint")
    gateway.worker.finish(turn_id)
    hint = next(event for event in listener.events() if event["event"] == "model.delta")
    assert "id" not in hint
    told = json.loads(hint["data"])
    assert (told["turn_id"], told["type"], told["data"]) == (turn_id, "model.delta", {"text": "Là"})
    assert "seq" not in told


def test_entry_that_is_no_utf8_does_not_stop_the_stream(gateway: Gateway, listen: Listen) -> None:
    """One turn's text must not end live events for all turns: the reader continues after it."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("turn.queued")
    wait_until(lambda: _hinted(gateway, listener, turn_id), "a hint")
    broken = json.dumps([[None, "model.delta", 1.0, '{"text":"HALF"}']]).encode().replace(b"HALF", b"\xed\xa0\xbd")
    gateway.worker.redis.xadd(EVENT_STREAM, {"turn": turn_id, "told": broken})
    gateway.worker.send(turn_id, "model.delta", None, text="still here")
    listener.until("still here")
    gateway.worker.finish(turn_id)
    listener.events()


def _hinted(gateway: Gateway, listener: Listener, turn_id: str) -> bool:
    gateway.worker.send(turn_id, "model.delta", None, text="Là")
    return any("model.delta" in line for line in list(listener.lines))


def test_reader_that_lost_its_connection_repeats_no_hint(gateway: Gateway, listen: Listen) -> None:
    """A client would show the text twice."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("turn.queued")
    wait_until(lambda: _hinted(gateway, listener, turn_id), "a hint")
    gateway.worker.send(turn_id, "model.delta", None, text="once")
    listener.until("once")
    gateway.worker.redis.client_kill_filter(_type="normal", skipme=True)

    def is_back() -> bool:
        gateway.worker.send(turn_id, "model.delta", None, text="back")
        return any("back" in line for line in list(listener.lines))

    wait_until(is_back, "the reader to be back")
    gateway.worker.finish(turn_id)
    assert sum('"once"' in event["data"] for event in listener.events()) == 1


def test_stream_finds_what_the_live_events_lost(gateway: Gateway, listen: Listen) -> None:
    """An event that never reached Redis is read from SQL, in its place."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("turn.queued")
    gateway.worker.event(turn_id, "step.started", live=False, step=0)
    gateway.worker.event(turn_id, "step.completed", live=True, step=0)
    gateway.worker.finish(turn_id, live=False)
    assert seqs(listener.events()) == ["1", "2", "3", "4"]


def test_stream_repeats_nothing_that_comes_twice(gateway: Gateway, listen: Listen) -> None:
    """A live event that is sent again, or late, is dropped."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("turn.queued")
    gateway.worker.event(turn_id, "step.started", step=0)
    gateway.worker.send(turn_id, "step.started", 2, step=0)
    gateway.worker.send(turn_id, "turn.queued", 1)
    gateway.worker.finish(turn_id)
    assert seqs(listener.events()) == ["1", "2", "3"]


def test_stream_resumes_after_the_last_event_id(gateway: Gateway, listen: Listen) -> None:
    """``Last-Event-ID`` wins over ``after``; at or beyond a finished turn's end the answer is 204."""
    turn_id = gateway.posted()["id"]
    gateway.worker.event(turn_id, "step.started", step=0)
    gateway.worker.finish(turn_id)
    assert seqs(listen(turn_id, **{"Last-Event-ID": "1"}).events()) == ["2", "3"]
    path = f"/v1/turns/{turn_id}/events"
    for last in ("3", "4", "9" * 40):
        response = gateway.http.get(f"{path}?after=0", headers={**SSE, "Last-Event-ID": last})
        assert (response.status_code, response.content) == (204, b"")
    assert gateway.http.get(f"{path}?after=3", headers=SSE).status_code == 204


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize("last", ["-1", "x", "1.0", ""])
def test_stream_resumed_after_nonsense_is_422(gateway: Gateway, last: str) -> None:
    """``Last-Event-ID`` must be a non-negative integer."""
    turn_id = gateway.posted()["id"]
    response = gateway.http.get(f"/v1/turns/{turn_id}/events", headers={**SSE, "Last-Event-ID": last})
    problem_of(response, 422, "invalid_request")


def test_stream_resumed_beyond_a_running_turns_end_still_ends(gateway: Gateway, listen: Listen) -> None:
    """A client that claims to have later events than exist gets the end of its stream when the turn ends."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id, **{"Last-Event-ID": "900"})
    listener.until("heartbeat")
    gateway.worker.finish(turn_id)
    assert seqs(listener.events()) == []


def test_stream_that_is_quiet_sends_heartbeats(gateway: Gateway, listen: Listen) -> None:
    """Comments keep the connection open."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until(": heartbeat")
    gateway.worker.finish(turn_id)
    assert seqs(listener.events()) == ["1", "2"]


def test_stream_of_an_unknown_turn_is_404(gateway: Gateway) -> None:
    """It does not wait for a turn that does not exist."""
    problem_of(gateway.http.get("/v1/turns/nope/events", headers=SSE), 404, "not_found")


def test_stream_holds_more_events_than_a_page(gateway: Gateway, listen: Listen) -> None:
    """If a burst overflows a slow reader's queue, the events are read from SQL, and none is missing."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("turn.queued")
    for step in range(600):
        gateway.worker.event(turn_id, "step.started", live=step % 2 == 0, step=step)
    gateway.worker.finish(turn_id)
    assert seqs(listener.events()) == [str(seq) for seq in range(1, 603)]


@pytest.mark.one_database("sqlite")
@pytest.mark.gateway(redis_url=NOWHERE)
def test_stream_works_without_redis(gateway: Gateway, listen: Listen) -> None:
    """SQL alone is enough, though a little slower."""
    turn_id = gateway.posted()["id"]
    listener = listen(turn_id)
    listener.until("heartbeat")
    gateway.worker.finish(turn_id, live=False)
    assert seqs(listener.events()) == ["1", "2"]


def test_live_event_reaches_a_waiter_before_the_next_look_into_sql(
    sqlite_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live event comes long before the next look into SQL, which is a minute away here."""
    monkeypatch.setattr(event_stream, "POLL_S", 60.0)
    with (
        gateway_on(sqlite_url, gateway_redis, sse_heartbeat_s=60.0) as gateway,
        ThreadPoolExecutor(1) as pool,
    ):
        turn_id = gateway.posted()["id"]
        listener = Listener(gateway, turn_id, pool)
        listener.until("turn.queued")
        for step in range(5):
            gateway.worker.event(turn_id, "step.started", step=step)
            listener.until(f'"step":{step}')
        gateway.worker.finish(turn_id)
        listener.events()


def test_stream_goes_on_while_the_database_stands_still(line: Relay, gateway_redis: str) -> None:
    """Heartbeats and live events continue, because clients take a silent stream for a broken one."""
    with (
        gateway_on(line.url, gateway_redis, sse_heartbeat_s=0.2) as gateway,
        ThreadPoolExecutor(1) as pool,
    ):
        turn_id = gateway.posted()["id"]
        listener = Listener(gateway, turn_id, pool)
        listener.until("turn.queued")
        listener.until("heartbeat")
        line.silence()
        heard = len(listener.lines)
        wait_until(lambda: _beats(listener.lines[heard:]) > 10, "heartbeats", 20)
        gateway.worker.send(turn_id, "turn.completed", 2)
        assert seqs(listener.events()) == ["1", "2"]


def _beats(lines: list[str]) -> int:
    return sum(line == ": heartbeat" for line in lines)


def test_stream_goes_on_after_a_database_that_refused(gateway: Gateway) -> None:
    """Whatever it was asked at that moment: for events, or whether there are any."""
    turn_id = gateway.posted()["id"]
    refusals = {kind: [OperationalError("SELECT", None, OSError("away"))] for kind in ("events", "head")}

    class Refusing(Turns):
        async def events(self, turn_id: str, query: EventsQuery) -> EventPage:
            if refusals["events"]:
                raise refusals["events"].pop()
            return await super().events(turn_id, query)

    async def follow() -> list[str]:
        engine = create_engine(gateway.settings.database_url)

        async def read(wanted: frozenset[str]) -> Mapping[str, Head]:
            if refusals["head"]:
                await asyncio.to_thread(gateway.worker.finish, turn_id, live=False)
                raise refusals["head"].pop()
            return await read_heads(engine, wanted)

        try:
            async with _stream(
                turn_id, Refusing(engine, DEFAULT_TENANT, scan_places()), Gathered(read), LiveEvents(None)
            ).events() as events:
                return [told.type async for told in events if told is not None]
        finally:
            await engine.dispose()

    assert asyncio.run(follow()) == ["turn.queued", "turn.completed"]
    assert refusals == {"events": [], "head": []}


def test_streams_that_are_quiet_look_into_sql_together(gateway: Gateway) -> None:
    """However many streams and turns there are, they share few queries, so that other requests do not wait."""
    turn_ids = [gateway.posted()["id"] for _ in range(10)] * 3
    statements: list[str] = []

    async def listen_to_all() -> None:
        engine = create_engine(gateway.settings.database_url)
        event.listen(engine.sync_engine, "before_cursor_execute", lambda *told: statements.append(told[2]))

        async def read_slowly(wanted: frozenset[str]) -> Mapping[str, Head]:
            await asyncio.sleep(0.3)  # however slow the machine is, the others ask meanwhile
            return await read_heads(engine, wanted)

        heads, live = Gathered(read_slowly), LiveEvents(None)
        try:
            await asyncio.gather(
                *(
                    _hear_nothing_twice(each, Turns(engine, DEFAULT_TENANT, scan_places()), heads, live)
                    for each in turn_ids
                )
            )
        finally:
            await engine.dispose()

    asyncio.run(listen_to_all())
    assert sum("FROM turn_events" in statement for statement in statements) == len(turn_ids)
    assert 0 < sum("turns.id IN" in statement for statement in statements) < len(turn_ids)


def _stream(turn_id: str, turns: Turns, heads: Gathered[Head], live: LiveEvents) -> EventStream:
    async def always() -> bool:
        return True

    return EventStream(
        turn_id=turn_id,
        position=Position(seq=0),
        turns=turns,
        heads=heads,
        live=live,
        heartbeat_s=0.5,
        may_go_on=always,
    )


async def _hear_nothing_twice(turn_id: str, turns: Turns, heads: Gathered[Head], live: LiveEvents) -> None:
    async with _stream(turn_id, turns, heads, live).events() as events:
        # It beats while its first reading is under way too.
        while (told := await anext(events)) is None:
            pass
        assert told.type == "turn.queued"
        assert [await anext(events) for _ in range(2)] == [None, None]
