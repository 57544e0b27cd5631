"""The official ``openai`` client at a gateway, with a stand-in for workers: streams, waits, retries, errors."""

# ruff: noqa: ANN401 - answers are any JSON
from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Final

import httpx2
import openai
import pytest
from openai import Omit, Stream
from openai.types.chat import ChatCompletionChunk
from sqlalchemy import text

from api_gateway.concurrency.coalescing import LateAnswers
from api_gateway.config import Settings
from api_gateway.openai_facade import running
from api_gateway.services import Services
from api_gateway.turns.answers import Turn
from api_gateway.use_cases import waiting
from api_gateway.use_cases.waiting import Waiter, turn_now
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import AGENT, NOWHERE, Gateway, gateway_on, problem_of, serving
from tests.integration.openai_kit import ASKED, Client, client_of, the_turn
from tests.unit.builders import CAPS

SAID = "done"
"""What every turn that the worker's hand ends has said."""


@pytest.fixture
def gateway(sqlite_url: str, gateway_redis: str) -> Generator[Gateway]:
    """A gateway with fast heartbeats that already receives live events, on SQLite alone."""
    with gateway_on(sqlite_url, gateway_redis, sse_heartbeat_s=0.2) as running:
        wait_until(lambda: "xread" in _commands(running), "the gateway to listen")
        yield running


def _commands(gateway: Gateway) -> list[str]:
    """The last command of each reader of live events."""
    clients = gateway.worker.redis.client_list()
    return [client["cmd"] for client in clients if client["name"] == "harness-gateway"]


@pytest.fixture
def client(gateway: Gateway) -> Generator[Client]:
    """The client of that gateway."""
    with client_of(gateway.url) as client:
        yield client


def say(gateway: Gateway, turn_id: str, *heard: str) -> None:
    """Write what the model of every turn here says; only some of its hints are sent."""
    gateway.worker.event(turn_id, "step.started", step=0)
    for piece in heard:
        start = SAID.index(piece)
        gateway.worker.send(turn_id, "model.delta", None, step=0, attempt=1, start=start, text=piece)
    gateway.worker.event(turn_id, "model.completed", step=0, text=SAID)


def texts(chunks: Stream[ChatCompletionChunk]) -> Iterator[str]:
    """The pieces of text in a stream of chunks."""
    return (choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content)


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heard", "passed_on"),
    [(("do", "ne"), ["do", "ne"]), (("do",), ["do", "ne"]), ((), [SAID]), (("ne",), [SAID])],
)
def test_stream_is_whole_though_hints_are_lost(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor, heard: tuple[str, ...], passed_on: list[str]
) -> None:
    """Missing text comes as one piece, and no text comes twice."""
    pieces: list[str] = []
    reading = pool.submit(lambda: pieces.extend(texts(client.chat(stream=True))))
    turn_id = the_turn(gateway)
    gateway.worker.event(turn_id, "step.started", step=0)
    for piece in heard:
        start = SAID.index(piece)
        gateway.worker.send(turn_id, "model.delta", None, step=0, attempt=1, start=start, text=piece)
        if start == len("".join(pieces)):
            wait_until(lambda piece=piece: piece in pieces, f"{piece!r} to be passed on")
    gateway.worker.event(turn_id, "model.completed", step=0, text=SAID)
    gateway.worker.finish(turn_id)
    reading.result(30)
    assert pieces == passed_on


def test_stream_needs_no_live_events(sqlite_url: str, gateway_redis: str, pool: ThreadPoolExecutor) -> None:
    """While Redis is down, the stream is made from the journal."""
    with gateway_on(sqlite_url, gateway_redis, redis_url=NOWHERE) as gateway, client_of(gateway.url) as client:
        reading = pool.submit(lambda: [event.type for event in client.respond(stream=True)])
        wait_until(gateway.ids, "the turn")
        (turn_id,) = gateway.ids()
        say(gateway, turn_id)
        gateway.worker.finish(turn_id)
        assert reading.result(30) == [
            *("response.created", "response.in_progress"),
            *("response.output_item.added", "response.content_part.added"),
            *("response.output_text.delta", "response.output_text.done"),
            *("response.content_part.done", "response.output_item.done", "response.completed"),
        ]


def test_stream_that_is_quiet_sends_heartbeats(gateway: Gateway, client: Client, pool: ThreadPoolExecutor) -> None:
    """They are comments, which the client ignores. A repeat with the same key streams the same turn."""
    key = {"Idempotency-Key": "k"}
    reading = pool.submit(lambda: list(texts(client.chat(stream=True, extra_headers=key))))
    turn_id = the_turn(gateway)
    gateway.worker.event(turn_id, "step.started", step=0)
    body = {"model": AGENT, "messages": ASKED, "stream": True}
    with httpx2.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=key, timeout=20) as raw:
        lines = raw.iter_lines()
        assert any(line == ": heartbeat" for line in lines)
        say(gateway, turn_id, "do", "ne")
        gateway.worker.finish(turn_id)
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == [SAID, None]
    assert reading.result(30) == ["do", "ne"]
    assert gateway.ids() == [turn_id]


@pytest.mark.parametrize(("path", "asked"), [("chat/completions", {"messages": ASKED}), ("responses", {"input": "Hi"})])
def test_stream_of_a_turn_that_says_nothing_sends_heartbeats(
    gateway: Gateway, pool: ThreadPoolExecutor, path: str, asked: dict[str, Any]
) -> None:
    """Much may happen of which the client is told nothing, but which must not let it wait longer than it does."""
    body = {"model": AGENT, **asked, "stream": True}
    with httpx2.stream("POST", f"{gateway.url}/v1/{path}", json=body, timeout=10) as raw:
        turn_id = the_turn(gateway)
        heard = pool.submit(lambda: any(line == ": heartbeat" for line in raw.iter_lines()))
        while not heard.done():
            gateway.worker.send(turn_id, "tool.started", None, call_id="0.0", tool="look", attempt=1)
            Event().wait(0.001)
        assert heard.result()


def test_stream_goes_on_while_the_database_does_not_answer(gateway: Gateway) -> None:
    """What could not be read then is sent later, in order."""
    body = {"model": AGENT, "input": "Where is it?", "stream": True}
    with httpx2.stream("POST", f"{gateway.url}/v1/responses", json=body, timeout=20) as raw:
        lines = raw.iter_lines()
        turn_id = the_turn(gateway)
        gateway.worker.call(turn_id, 0, 0, status="ended", outcome={"kind": "ToolExecutionResult", "content": "x"})
        _run(gateway, "ALTER TABLE tool_calls RENAME TO gone")
        gateway.worker.event(turn_id, "wave.completed", step=0, wave=0, calls=["0.0"])
        assert any(line == ": heartbeat" for line in lines)
        _run(gateway, "ALTER TABLE gone RENAME TO tool_calls")
        gateway.worker.finish(turn_id)
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    items = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
    assert items == ["function_call", "function_call_output", "message"]
    assert events[-1]["type"] == "response.completed"


def test_stream_ends_where_a_person_is_asked_though_the_turn_could_not_be_read_then(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream looks at the turn again soon: the person's answer, which its client has to give, may take a day."""
    were_seen: list[bool] = []

    async def watched(turn: Turn, waiter: Waiter, services: Services) -> Turn:
        seen = await turn_now(turn, waiter, services)
        were_seen.append(seen is not turn)
        return seen

    monkeypatch.setattr(running, "turn_now", watched)
    reading = pool.submit(lambda: list(client.respond(stream=True)))
    turn_id = the_turn(gateway)
    gateway.worker.call(turn_id, 0, 0, approval={"expires_at": 4e9})
    gateway.worker.change(turn_id, status="requires_action")
    _run(gateway, "ALTER TABLE tool_calls RENAME TO gone")
    gateway.worker.event(turn_id, "turn.requires_action")
    wait_until(lambda: were_seen, "the look that fails")
    _run(gateway, "ALTER TABLE gone RENAME TO tool_calls")
    wait_until(lambda: True in were_seen, "the stream to look again")
    last = reading.result(30)[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "in_progress")
    assert "it asks to run get_order (0.0)" in last.response.metadata["requires_action"]


def _run(gateway: Gateway, statement: str) -> None:
    with gateway.worker.engine.begin() as connection:
        connection.execute(text(statement))


def test_items_of_a_stream_are_those_of_the_whole_response(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor
) -> None:
    """Each item has one id; text before calls and the answer are different items."""
    reading = pool.submit(_streamed, client)
    turn_id = the_turn(gateway)
    for step in range(6):
        gateway.worker.event(turn_id, "step.started", step=step)
        gateway.worker.event(turn_id, "model.completed", step=step, text=f"Look {step}.")
        gateway.worker.call(turn_id, step, 0, status="ended", outcome={"kind": "ToolExecutionResult", "content": "x"})
        gateway.worker.event(turn_id, "wave.completed", step=step, wave=0, calls=[f"{step}.0"])
    gateway.worker.event(turn_id, "step.started", step=6)
    gateway.worker.event(turn_id, "model.completed", step=6, text=SAID)
    gateway.worker.change(turn_id, used={**gateway.worker.row(turn_id).used, "steps": 7})
    gateway.worker.finish(turn_id)
    events, final = reading.result(30)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.output_index for event in done] == list(range(6 * 3 + 1))
    items = {event.item.id: event.item.to_dict() for event in done}
    assert len(items) == len(done)
    assert all(event.item_id in items for event in events if event.type == "response.output_text.delta")
    read = client.openai.responses.retrieve(turn_id)
    assert [item.to_dict() for item in read.output] == [items[item_id] for item_id in _ids(final)]
    assert final.output_text == SAID
    told_alone = [item["content"][0]["text"] for item_id, item in items.items() if item_id not in _ids(final)]
    assert told_alone == [f"Look {step}." for step in range(6)]


def _streamed(client: Client) -> tuple[list[Any], Any]:
    """The events as the client's own stream gives them, and its whole response."""
    with client.openai.responses.stream(model=AGENT, input="Where is it?") as stream:
        return list(stream), stream.get_final_response()


def _ids(response: Any) -> list[str]:
    return [item.id for item in response.output]


def test_stream_begins_as_a_response_in_progress(gateway: Gateway, client: Client, pool: ThreadPoolExecutor) -> None:
    """Whether the turn still waits for a worker or is over, as OpenAI's do: older clients know no other beginning."""
    key = {"extra_headers": {"Idempotency-Key": "k"}}
    reading = pool.submit(lambda: list(client.respond(stream=True, **key)))
    gateway.worker.finish(the_turn(gateway), "failed")
    for events in (reading.result(30), list(client.respond(stream=True, **key))):
        begun = [(event.type, event.response.status, event.response.error) for event in events[:2]]
        assert begun == [("response.created", "in_progress", None), ("response.in_progress", "in_progress", None)]
        assert events[-1].response.status == "failed"


@pytest.mark.parametrize(
    ("status", "last", "told"),
    [("failed", "response.failed", "failed"), ("cancelled", "response.incomplete", "cancelled")],
)
def test_stream_of_a_response_ends_as_the_turn_does(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor, status: str, last: str, told: str
) -> None:
    """The last event has the whole response."""
    reading = pool.submit(lambda: list(client.respond(stream=True)))
    turn_id = the_turn(gateway)
    gateway.worker.finish(turn_id, status)
    events = reading.result(30)
    assert (events[-1].type, events[-1].response.status) == (last, told)
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_stream_of_a_completion_that_fails_raises(gateway: Gateway, client: Client, pool: ThreadPoolExecutor) -> None:
    """The client's error has the turn's message."""
    reading = pool.submit(lambda: list(texts(client.chat(stream=True))))
    gateway.worker.finish(the_turn(gateway), "cancelled")
    with pytest.raises(openai.APIError, match="cancelled") as raised:
        reading.result(30)
    assert raised.value.code == "turn_failed"


def test_client_that_leaves_its_stream_leaves_the_turn(gateway: Gateway, client: Client) -> None:
    """Closing a stream does not cancel the turn."""
    with client.chat(stream=True) as chunks:
        next(iter(chunks))
    turn_id = the_turn(gateway)
    wait_until(lambda: "harness_sse_readers 0.0" in gateway.http.get("/metrics").text, "the stream to end")
    assert gateway.worker.row(turn_id).cancel_requested is False
    gateway.worker.finish(turn_id)
    assert client.openai.responses.retrieve(turn_id).output_text == SAID


# --- waits and retries ------------------------------------------------------------------------------------------------

SAYS_IT_WAITS_BRIEFLY: Final = {"extra_headers": {"x-stainless-read-timeout": "3"}}
"""What the client would say whose patience ends soon; it waits for longer, however slow the machine is."""

NODE_WAITS_BRIEFLY: Final = {"extra_headers": {"x-stainless-read-timeout": Omit(), "x-stainless-timeout": "3"}}
"""The same in the words of the client for Node."""


def test_response_that_takes_longer_than_the_client_waits_is_read_later(gateway: Gateway) -> None:
    """The client's header says how long it waits, and the answer comes before it would retry."""
    with client_of(gateway.url, timeout=60.0) as client:
        response = client.respond(**SAYS_IT_WAITS_BRIEFLY)
        assert (response.status, len(client.requests), len(gateway.ids())) == ("queued", 1, 1)
        gateway.worker.finish(response.id)
        assert client.openai.responses.retrieve(response.id).output_text == SAID
        assert client.requests[-1].headers["x-stainless-read-timeout"] == "60.0", "it says so by itself"


@pytest.mark.parametrize("said", [SAYS_IT_WAITS_BRIEFLY, NODE_WAITS_BRIEFLY], ids=["python", "node"])
def test_completion_that_takes_longer_than_the_client_waits_says_where_it_will_be(
    gateway: Gateway, said: dict[str, Any]
) -> None:
    """The client does not retry, which would make another turn."""
    with client_of(gateway.url, timeout=60.0) as client:
        with pytest.raises(openai.InternalServerError, match="read it with responses") as raised:
            client.chat(**said)
        assert (raised.value.code, len(client.requests), len(gateway.ids())) == ("turn_unfinished", 1, 1)


def test_completion_that_fails_is_not_asked_for_again(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor
) -> None:
    """The client retries other 502s, so the answer tells it not to."""
    asking = pool.submit(client.chat)
    gateway.worker.finish(the_turn(gateway), "cancelled")
    with pytest.raises(openai.InternalServerError, match="somebody cancelled it"):
        asking.result(30)
    assert (len(client.requests), len(gateway.ids())) == (1, 1)


def test_wait_whose_database_goes_away_is_not_begun_again(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor
) -> None:
    """The client does not retry, because the turn is already stored."""
    asking = pool.submit(client.chat)
    turn_id = the_turn(gateway)
    _run(gateway, "ALTER TABLE tool_calls RENAME TO gone")
    gateway.worker.finish(turn_id)
    with pytest.raises(openai.InternalServerError, match=f"responses.retrieve\\('{turn_id}'\\)"):
        asking.result(30)
    assert len(client.requests) == 1


def test_one_key_makes_one_turn_for_all_who_wait(gateway: Gateway, client: Client, pool: ThreadPoolExecutor) -> None:
    """Requests with one key get the same answer, whether at the same time or later, streamed or not."""
    key = {"extra_headers": {"Idempotency-Key": "k"}}
    asking = [pool.submit(client.respond, **key) for _ in range(3)]
    turn_id = the_turn(gateway)
    gateway.worker.finish(turn_id)
    answers = [each.result(30) for each in asking] + [client.respond(**key)]
    assert {(answer.id, answer.output_text) for answer in answers} == {(turn_id, SAID)}
    assert (gateway.ids(), len(gateway.worker.wake_ups(turn_id))) == ([turn_id], 1)
    with pytest.raises(openai.UnprocessableEntityError, match="take a new key"):
        client.respond(**key, input="Something else")


def test_key_of_a_turn_that_is_over_is_answered_at_once(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered without waiting; a waiting request would look only after the client's patience has ended."""
    monkeypatch.setattr(waiting, "POLL_S", 600.0)
    key = {"extra_headers": {"Idempotency-Key": "k"}}
    asking = pool.submit(client.chat, **key)
    gateway.worker.finish(the_turn(gateway))
    asking.result(30)
    client.chat(**key)
    assert len(client.requests) == 2


def test_background_response_is_answered_at_once_and_can_be_cancelled(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor
) -> None:
    """A cancel waits for the turn's end; a late one changes nothing."""
    response = client.respond(background=True)
    assert response.status == "queued"
    cancelling = pool.submit(client.openai.responses.cancel, response.id)
    wait_until(lambda: gateway.worker.row(response.id).cancel_requested, "the cancel")
    gateway.worker.finish(response.id, "cancelled")
    assert cancelling.result(30).status == "cancelled"
    assert client.openai.responses.cancel(response.id).status == "cancelled"


def test_cancel_of_a_response_that_waits_for_a_person_waits_for_its_end(
    gateway: Gateway, client: Client, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks as if it waited for the person until a worker has ended it."""
    looks: list[float] = []

    class Counted(LateAnswers[Any]):
        async def within(self, limit_s: float) -> Any:
            looks.append(limit_s)
            return await super().within(limit_s)

    monkeypatch.setattr(waiting, "LateAnswers", Counted)
    monkeypatch.setattr(waiting, "POLL_S", 0.05)
    response = client.respond(background=True)
    gateway.worker.change(response.id, status="requires_action")
    cancelling = pool.submit(client.openai.responses.cancel, response.id)
    wait_until(lambda: len(looks) > 3 or cancelling.done(), "the gateway to look again and again")
    gateway.worker.finish(response.id, "cancelled")
    assert cancelling.result(30).status == "cancelled"


def test_response_has_what_was_asked_for(client: Client) -> None:
    """It is the same whether it is answered, streamed or read later, and says what holds for the turn by itself."""
    asked = {"instructions": "Be brief.", "parallel_tool_calls": False, "max_tool_calls": 2, "metadata": {"a": "b"}}
    for options in ({"background": True}, {"background": True, "stream": True}):
        told = client.respond(**asked, **options)
        if "stream" in options:
            told = next(iter(told)).response
        read = client.openai.responses.retrieve(told.id)
        for each in (told, read):
            assert {name: getattr(each, name) for name in asked} == asked
            assert each.to_dict()["text"] == {"format": {"type": "text"}}
            assert (each.tools, each.previous_response_id) == ([], None)
    silent = client.respond(background=True)
    for each in (silent, client.openai.responses.retrieve(silent.id)):
        assert {name: getattr(each, name) for name in asked} == {
            "instructions": None,
            "parallel_tool_calls": True,
            "max_tool_calls": CAPS["max_tool_calls"],
            "metadata": {},
        }


def test_response_of_an_agent_whose_calls_run_one_at_a_time_says_so(gateway: Gateway, client: Client) -> None:
    """Whatever was asked for: a request can only forbid that calls run at once."""
    gateway.worker.publish_agent("alone", parallel=False)
    for asked in ({}, {"parallel_tool_calls": True}):
        told = client.respond(model="alone", background=True, **asked)
        assert [told.parallel_tool_calls, client.openai.responses.retrieve(told.id).parallel_tool_calls] == [False] * 2


# --- conversations ----------------------------------------------------------------------------------------------------


def test_conversation_goes_on_and_does_not_fork(database_url: str, gateway_redis: str) -> None:
    """The next response is the session's next turn; only the session's last response can be continued."""
    with (
        gateway_on(database_url, gateway_redis) as gateway,
        client_of(gateway.url) as client,
    ):
        other, first = (client.respond(background=True) for _ in range(2))
        key = {"extra_headers": {"Idempotency-Key": "k"}, "background": True}
        second = client.respond(previous_response_id=first.id, **key)
        assert second.conversation == first.conversation
        assert client.respond(previous_response_id=first.id, **key).id == second.id
        with pytest.raises(openai.UnprocessableEntityError, match=f"continue from {second.id}") as raised:
            client.respond(previous_response_id=first.id)
        assert raised.value.param == "previous_response_id"
        third = client.respond(conversation=first.conversation.id, background=True)
        befores = [(each, before) for each, before in ((first, None), (second, first.id), (third, second.id))]
        for told, before in befores:
            read = client.openai.responses.retrieve(told.id)
            assert (told.previous_response_id, read.previous_response_id) == (before, before)
        assert gateway.ids(session_id=first.conversation.id) == [third.id, second.id, first.id]
        with pytest.raises(openai.NotFoundError, match="there is no turn 'nobody'") as unknown:
            client.respond(previous_response_id="nobody")
        assert unknown.value.param == "previous_response_id"
        assert len(gateway.ids()) == 4
        assert client.openai.responses.retrieve(other.id).previous_response_id is None


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_are_the_clients_own(gateway: Gateway, client: Client) -> None:
    """Each error has the client's own class, says what was wrong, and has the gateway's code."""
    with pytest.raises(openai.NotFoundError, match=f"there are: {AGENT}") as unknown:
        client.respond(model="nobody")
    assert (unknown.value.code, unknown.value.type) == ("unknown_agent", "invalid_request_error")
    with pytest.raises(openai.UnprocessableEntityError, match="an agent has its own tools") as tools:
        client.chat(tools=[{"type": "function", "function": {"name": "f"}}])
    assert (tools.value.code, tools.value.param) == ("invalid_request", "tools")
    with pytest.raises(openai.NotFoundError):
        client.openai.responses.retrieve("nobody")
    assert gateway.ids() == []


def test_errors_of_every_kind_have_openais_shape(gateway: Gateway) -> None:
    """So do errors made outside of these routes' handlers; the gateway's other routes keep their format."""
    http = gateway.http
    for answer, status, code in (
        (http.post("/v1/responses", content=b"{"), 422, "invalid_request"),
        (http.get("/v1/responses/x?stream=true"), 422, "invalid_request"),
        (http.post("/v1/responses", json={}, headers={"Idempotency-Key": ""}), 422, "invalid_request"),
        (http.put("/v1/chat/completions"), 405, "method_not_allowed"),
        (http.get("/v1/responses/x/nothing"), 404, "not_found"),
        (http.get("/v1/models/"), 404, "not_found"),
        (http.get("/v1/models", headers={"Host": "evil.example"}), 403, "forbidden"),
        (_without_tables(gateway), 503, "not_ready"),
    ):
        error: Mapping[str, Any] = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), answer.text
        assert set(error) == {"message", "type", "code", "param"}
        assert answer.headers["content-type"] == "application/json"
    problem_of(http.get("/v1/turns/x"), 404, "not_found")


def _without_tables(gateway: Gateway) -> httpx2.Response:
    _run(gateway, "ALTER TABLE agents RENAME TO gone")
    try:
        return gateway.http.get("/v1/models")
    finally:
        _run(gateway, "ALTER TABLE gone RENAME TO agents")


def test_gateway_that_takes_no_clients_says_so(sqlite_url: str) -> None:
    """The client raises its authentication error."""
    with (
        serving(Settings(database_url=sqlite_url, redis_url=NOWHERE)) as url,
        client_of(url) as client,
        pytest.raises(openai.AuthenticationError, match="no API key: send Authorization: Bearer KEY"),
    ):
        client.openai.models.list()
