"""The gateway's pure rules."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from ipaddress import IPv6Address
from time import monotonic, process_time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import IdleInTransactionSessionTimeout, InFailedSqlTransaction, InternalError_, TransactionTimeout
from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import Engine
from sqlalchemy.exc import InternalError
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.artifacts import ArtifactFiles
from api_gateway.batches.requests import BatchRequest
from api_gateway.concurrency.coalescing import Gathered
from api_gateway.config import load_settings
from api_gateway.database import create_engine
from api_gateway.logs import AcceptErrors
from api_gateway.openai_facade.requests import ChatRequest, ResponseRequest
from api_gateway.problems import MOST_PROBLEMS, Problem, field_problems, no_database
from api_gateway.requests.body import MOST_LISTED, parsed_body
from api_gateway.requests.cursors import Cursor, format_cursor, parse_cursor
from api_gateway.requests.fields import ShortText
from api_gateway.requests.json_object import digest, parse_object
from api_gateway.requests.turns import BudgetRequest, ForkRequest, InputRequest, TurnRequest
from api_gateway.streams.live import QUEUE_SIZE, Feed, LiveEvent, LiveEvents, Wake
from api_gateway.streams.sse import wants_stream
from api_gateway.turns.arguments import argument_problems
from api_gateway.turns.heads import Head
from api_gateway.turns.new_turns import clamped, unknown_agents
from api_gateway.use_cases.waiting import Waiter, turn_now, wait_for_rest, wait_of
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.signature import inspect_function
from harness_worker.errors import ArgumentsInvalid, ConfigError
from harness_worker.urls import is_loopback
from tests.unit.builders import CAPS


@pytest.mark.parametrize("ended", [IdleInTransactionSessionTimeout(), TransactionTimeout(), InternalError_()])
def test_transaction_that_postgres_ended_itself_is_no_bug(ended: Exception) -> None:
    """The gateway stood still, the database was slow or had an error of its own: who asks shall try again."""
    assert no_database(InternalError(None, None, ended)).status == 503


def test_statement_that_postgres_refuses_is_a_bug() -> None:
    """A client can do nothing about it."""
    with pytest.raises(InternalError):
        no_database(InternalError(None, None, InFailedSqlTransaction()))


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (["wait=20"], 20),
        (["Wait = 5"], 5),
        (['wait="7"'], 7),
        (["respond-async, wait=10"], 10),
        (["respond-async", "wait=10"], 10),
        (["wait=0.5"], 0.5),
        (["wait=600"], 60),
        (["wait=3; foo=bar"], 3),
        ([], 0),
        (["wait=-1"], 0),
        (["wait=x"], 0),
        (["wait=1e3"], 0),
        (["awaits=5"], 0),
        (["wait=" + "9" * 5_000], 60),
    ],
)
def test_wait_of_prefer_headers(prefer: list[str], seconds: float) -> None:
    """Capped at 60 seconds; a senseless preference is none."""
    assert wait_of(prefer) == seconds


@pytest.mark.parametrize(
    ("accept", "stream"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, application/json", True),
        ("application/json, text/event-stream", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream; q=0.0", False),
        ("text/event-stream;q=0.5, application/json;q=0.9", False),
        ("application/json;q=0.5, text/event-stream", True),
        ("text/event-stream;q=high", True),
        ("*/*", False),
        ("", False),
        ("text/html", False),
    ],
)
def test_wants_stream_by_accept(accept: str, *, stream: bool) -> None:
    """Only an explicit wish, before JSON, makes a stream."""
    assert wants_stream(accept) is stream


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_cursor_round_trips(created_at: float, turn_id: str) -> None:
    """What is written is read back to the last bit."""
    cursor = Cursor(created_at=created_at, id=turn_id)
    assert parse_cursor(format_cursor(cursor)) == cursor


@given(st.text(max_size=60))
def test_cursor_of_anything_else_is_refused(text: str) -> None:
    """Any other text is a ValueError, nothing else, unless it is one that was written."""
    try:
        cursor = parse_cursor(text)
    except ValueError:
        return
    assert format_cursor(cursor) == text


@pytest.mark.parametrize("last", ["[]", "{}", "7", "null", '"\\ud800"', '"\\u0000"'])
def test_cursor_with_what_is_no_id_is_refused(last: str) -> None:
    """No database would take it."""
    crafted = base64.urlsafe_b64encode(f"[1.0,{last}]".encode()).decode().rstrip("=")
    with pytest.raises(ValueError, match="is not a cursor"):
        parse_cursor(crafted)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (b'{"a":1,"b":[2,{"c":null}]}', b'{ "b":[2.0,{"c":null}], "a":1e0 }', True),
        ('{"a":"ü"}'.encode(), b'{"a":"\\u00fc"}', True),
        (b'{"a":0}', b'{"a":-0.0}', True),
        (b'{"a":1}', b'{"a":true}', False),
        (b'{"a":1}', b'{"a":"1"}', False),
        (b'{"a":[1,2]}', b'{"a":[2,1]}', False),
        (b'{"a":null,"b":{"c":null}}', b'{"b":{}}', True),
        (b'{"a":[null]}', b'{"a":[]}', False),
        (b'{"a":[{"b":1,"c":null}]}', b'{"a":[{"b":1}]}', True),
        (b'{"a":[[{"b":null},null]]}', b'{"a":[[{},null]]}', True),
    ],
)
def test_digest_compares_parsed_json(one: bytes, other: bytes, *, equal: bool) -> None:
    """Spelling, the order of keys and null members do not count; values, types and the order of items do."""
    assert (digest(parse_object(one)) == digest(parse_object(other))) is equal


def test_numbers_do_not_grow_when_they_are_read() -> None:
    """A short body stays short: 1e308 is no integer of 309 digits, and what a double tells exactly is one."""
    parsed = parse_object(b'{"a":[1e308,-1e308,9007199254740992.0,1.5]}')
    assert json.dumps(parsed) == '{"a": [1e+308, -1e+308, 9007199254740992, 1.5]}'


def test_only_a_request_with_a_key_is_digested() -> None:
    """Nothing else asks for the digest, which costs more than reading the body."""
    raw = b'{"agent":"a","input":"b"}'
    assert parsed_body(TurnRequest, raw, with_digest=False).digest == ""
    assert parsed_body(TurnRequest, raw, with_digest=True).digest == digest(parse_object(raw))


def test_advice_is_taken_and_not_kept() -> None:
    """Whatever it is: it would lie in memory until the turn has ended."""
    raw = b'{"model":"a","messages":[{"role":"user","content":"b"}],"prediction":[1,2],"temperature":"hot"}'
    request = parsed_body(ChatRequest, raw, with_digest=False).value
    assert (request.prediction, request.temperature) == (None, None)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_parse_object_names_a_byte_order_mark(encoding: str) -> None:
    """Some editors and shells write one, and nobody sees it."""
    with pytest.raises(Problem, match="byte order mark"):
        parse_object("{}".encode(encoding))


def test_parse_object_says_that_a_surrogate_is_alone() -> None:
    """The message names the real trouble."""
    with pytest.raises(Problem, match="lone surrogate"):
        parse_object(b'{"a":"\\ud800"}')


MANY = {str(number): 1 for number in range(MOST_PROBLEMS + 1)}


@pytest.mark.parametrize(
    ("model", "place", "given"),
    [
        (TurnRequest, [], MANY),
        (TurnRequest, ["metadata"], {"metadata": MANY}),
        (TurnRequest, ["budget"], {"budget": MANY}),
        (ForkRequest, [], MANY),
        (ForkRequest, ["metadata"], {"metadata": MANY}),
        (BatchRequest, ["metadata"], {"metadata": MANY}),
        (BatchRequest, ["requests", 0, "params"], {"requests": [{"custom_id": "a", "params": MANY}]}),
        (ChatRequest, ["metadata"], {"metadata": MANY}),
        (ChatRequest, [], MANY),
        (ChatRequest, ["messages", 0], {"messages": [1, 1]}),
        (ChatRequest, ["messages", 0, "tool_calls", 0], {"messages": [{"role": "user", "tool_calls": [1, 1]}]}),
        (ResponseRequest, ["input", 0], {"input": [1, 1]}),
    ],
)
def test_what_is_wrong_again_and_again_is_told_once(
    model: type[BaseModel], place: list[str | int], given: dict[str, Any]
) -> None:
    """Nobody waits while a body's hundred thousand mistakes are listed."""
    good: dict[type[BaseModel], dict[str, Any]] = {
        TurnRequest: {"agent": "a", "input": "b"},
        ForkRequest: {"from_step": 0},
        BatchRequest: {"requests": [{"custom_id": "a", "params": {"agent": "a", "input": "b"}}]},
        ChatRequest: {"model": "a", "messages": [{"role": "user", "content": "b"}]},
        ResponseRequest: {"model": "a", "input": "b"},
    }
    parsed_body(model, json.dumps(good[model]).encode(), with_digest=False)
    with pytest.raises(Problem) as refused:
        parsed_body(model, json.dumps({**good[model], **given}).encode(), with_digest=False)
    assert [error.loc for error in refused.value.errors] == [["body", *place]]


def test_more_mistakes_than_can_be_listed_are_counted() -> None:
    """Up to there the first are told."""
    for many, told in ((MOST_LISTED, MOST_PROBLEMS + 1), (MOST_LISTED + 5, 1)):
        five = {"custom_id": "!", "params": {"agent": "a", "input": "b", **dict.fromkeys("wxyz", 1)}}
        requests = [five] * (many // 5)
        with pytest.raises(Problem) as refused:
            parsed_body(BatchRequest, json.dumps({"requests": requests}).encode(), with_digest=False)
        assert len(refused.value.errors) == told


def test_unknown_agents_are_told_with_their_places_as_many_as_are_told() -> None:
    """In the order in which they are asked; a request that has one place alone needs none."""
    missing: dict[str, list[str | int]] = {f"a{n}": ["body", "requests", n, "params", "agent"] for n in range(25)}
    problem = unknown_agents(missing, ["support"])
    assert [error.loc[2] for error in problem.errors] == list(range(MOST_PROBLEMS))
    assert problem.detail.endswith("'a19'; and 5 more are unknown; there are: support")
    alone = unknown_agents({"a": ["body", "agent"]}, [])
    assert (alone.errors, alone.detail) == ((), "there is no agent 'a'; no worker has published any agent yet")


@given(
    st.builds(
        BudgetRequest,
        max_steps=st.none() | st.integers(0, 10**40),
        max_tokens=st.none() | st.integers(0, 10**40),
        max_dollars=st.none() | st.floats(0, 1e300),
    )
)
def test_clamped_never_exceeds_the_cap(wanted: BudgetRequest) -> None:
    """No wish lifts a cap, and a wish below it counts."""
    budget = clamped(CAPS, wanted)
    assert budget.max_steps == (6 if wanted.max_steps is None else min(6, wanted.max_steps))
    assert budget.max_dollars == (1.0 if wanted.max_dollars is None else min(1.0, wanted.max_dollars))
    assert budget.max_tokens == (None if wanted.max_tokens is None else min(2**53, wanted.max_tokens))


@pytest.mark.parametrize(
    ("given_url", "driver"),
    [
        ("sqlite:////tmp/x.db", "sqlite+aiosqlite"),
        ("postgres://u@h/d", "postgresql+psycopg"),
        ("postgresql://u:p@h:1/d?sslmode=require", "postgresql+psycopg"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg"),
    ],
)
def test_engine_of_the_gateway_has_the_async_driver(given_url: str, driver: str) -> None:
    """It has that driver whichever spelling the workers' URL has."""
    assert create_engine(given_url).url.drivername == driver
    assert make_engine(given_url).url.drivername == driver.replace("+aiosqlite", "")


@pytest.mark.parametrize("url", ["sqlite:////tmp/h.db", "postgresql://u:p@h/d"])
@pytest.mark.parametrize("engine_of", [create_engine, make_engine])
def test_errors_of_the_database_show_no_values(engine_of: Callable[[str], AsyncEngine | Engine], url: str) -> None:
    """A statement's values are what users wrote."""
    engine = engine_of(url)
    assert (engine.sync_engine if isinstance(engine, AsyncEngine) else engine).hide_parameters


@pytest.mark.parametrize("engine_of", [create_engine, make_engine])
def test_url_whose_password_has_an_at_says_how_to_write_it(engine_of: Callable[[str], object]) -> None:
    """What stands behind it would be told as the host that does not answer."""
    with pytest.raises(ConfigError, match=r"HARNESS_DATABASE_URL.*%40") as raised:
        engine_of("postgresql://u:pass@s3cret@127.0.0.1:1/d")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("engine_of", [create_engine, make_engine])
@pytest.mark.parametrize(
    "url",
    [
        "mysql://h/d",
        "nonsense",
        "postgresql://u@h:port/d",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite+pysqlite:////tmp/x.db",
        "postgresql+asyncpg://u@h/d",
    ],
)
def test_url_of_a_database_that_the_workers_cannot_share_is_refused(
    engine_of: Callable[[str], object], url: str
) -> None:
    """By the gateway as by the workers; the message names the variable."""
    with pytest.raises(ConfigError, match="HARNESS_DATABASE_URL"):
        engine_of(url)


@pytest.mark.parametrize(
    ("overrides", "variable"),
    [
        ({"redis_url": "redis://h"}, "HARNESS_DATABASE_URL is not set"),
        ({"database_url": "mysql://h/d", "redis_url": "redis://h"}, "HARNESS_DATABASE_URL='mysql://h/d': give sqlite:"),
        ({"dev_keyless": "maybe"}, "HARNESS_DEV_KEYLESS='maybe': give 1 or 0"),
        ({"tenant_queue": str(10**20)}, f"HARNESS_TENANT_QUEUE='{10**20}': input should be less than or equal to 10"),
        (
            {"database_url": "mysql://u:secret@h/d", "redis_url": "redis://h"},
            "HARNESS_DATABASE_URL='mysql://u:***@h/d'",
        ),
        ({"database_url": "sqlite:///x"}, "HARNESS_REDIS_URL is not set"),
        ({"database_url": "sqlite:///x", "redis_url": "unix:///s"}, "HARNESS_REDIS_URL='unix:///s': give"),
        ({"database_url": "sqlite:///x", "broker_url": "http://u:p@h"}, "HARNESS_BROKER_URL='http://u:***@h'"),
        ({"database_url": "sqlite:///x", "redis_url": "redis:/u:secret@h"}, "HARNESS_REDIS_URL='redis:/***@h'"),
        (
            {"database_url": "sqlite:///x", "redis_url": "redis://h:0?password=secret"},
            "HARNESS_REDIS_URL='redis://h:0?password=***'",
        ),
        ({"database_url": "sqlite:///x", "redis_url": "redis://h", "log_level": "LOUD"}, "HARNESS_LOG_LEVEL='LOUD'"),
    ],
)
def test_settings_that_are_wrong_name_their_variable(
    overrides: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person knows at once what to mend."""
    for name in ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "LOG_LEVEL"):
        monkeypatch.delenv(f"HARNESS_{name}", raising=False)
    with pytest.raises(ConfigError) as error:
        load_settings(**overrides)
    assert variable in str(error.value)
    assert "secret" not in str(error.value)


def test_white_space_around_a_setting_is_dropped() -> None:
    """What is read from a file ends in a newline."""
    urls = {"database_url": "postgresql://u:p@h/d\n", "redis_url": "redis://u:p@h/0\n"}
    settings = load_settings(**urls, dev_keyless=" 1\n", webhook_private="0\n")
    assert (settings.database_url, settings.redis_url) == ("postgresql://u:p@h/d", "redis://u:p@h/0")
    assert (settings.dev_keyless, settings.webhook_private) == (True, False)


def test_artifact_url_that_cannot_be_used_shows_no_password() -> None:
    """A gateway that cannot reach the store says which it was told."""
    with pytest.raises(ConfigError, match=r"HARNESS_ARTIFACT_URL='nosuch://bob:\*\*\*@host/dir'") as error:
        ArtifactFiles("nosuch://bob:secret@host/dir")
    assert "secret" not in str(error.value)


def test_weak_webhook_secret_is_refused_and_not_shown() -> None:
    """Nor is one that is good, wherever settings are shown."""
    secret, urls = "hidden", {"database_url": "sqlite:///x", "redis_url": "redis://h"}
    with pytest.raises(ConfigError, match=r"^HARNESS_WEBHOOK_SECRET=\*\*\*: give one secret") as refused:
        load_settings(**urls, webhook_secret=secret)
    assert "hidden" not in str(refused.value)
    assert "hidden" not in repr(load_settings(**urls, webhook_secret=secret * 4))


def test_tenant_budget_is_read_and_refused_with_words() -> None:
    """As JSON from the environment; what it does not know is named."""
    urls = {"database_url": "sqlite:///x", "redis_url": "redis://h"}
    assert load_settings(**urls).tenant_budget is None
    assert load_settings(**urls, tenant_budget='{"max_dollars": 0.5}').tenant_budget == BudgetRequest(max_dollars=0.5)
    known = "max_steps, max_tool_calls, max_reflections, max_tokens, max_dollars, timeout_s"
    for wrong, said in {
        "{": "='{': give a JSON object of limits",
        '{"max_dolars": 0.5}': f".max_dolars is unknown: there are {known}",
        '{"max_steps": -1}': ".max_steps=-1: input should be greater than or equal to 0",
        "7": "='7': give a JSON object of limits",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(f"HARNESS_TENANT_BUDGET{said}")):
            load_settings(**urls, tenant_budget=wrong)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True)),
        *(("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("localhost.evil.example", False), ("", False)),
    ],
)
def test_is_loopback(host: str, *, loopback: bool) -> None:
    """Only this machine's own addresses."""
    assert is_loopback(host) is loopback


async def _drained(feed: Feed) -> list[LiveEvent | Wake]:
    return [await feed.next(0.001) for _ in range(3)]


def test_feed_that_overflows_sends_its_reader_to_sql() -> None:
    """A slow reader loses the events and is told so once; memory stays bounded."""

    async def overflow() -> list[LiveEvent | Wake]:
        feed = Feed()
        for seq in range(QUEUE_SIZE + 2):
            feed.offer(LiveEvent(turn_id="t", seq=seq, type="x", at=0.0, data="{}"))
        return await _drained(feed)

    lost, kept, nothing = asyncio.run(overflow())
    assert (lost, nothing) == (Wake.LOST, Wake.IDLE)
    assert isinstance(kept, LiveEvent)
    assert kept.seq == QUEUE_SIZE + 1


def test_arguments_for_a_tool_that_takes_none_are_named() -> None:
    """A person who edits a call reads which argument is too much, not what a schema of ``False`` allows."""
    (problem,) = argument_problems({"type": "object", "additionalProperties": False}, {"x": 1})
    assert "'x' was unexpected" in problem.msg


def test_argument_that_is_long_is_told_with_what_is_wrong_with_it() -> None:
    """The person knows the text, and needs the rule."""
    schema = {"type": "object", "properties": {"note": {"type": "string", "maxLength": 500}}}
    (problem,) = argument_problems(schema, {"note": "n" * 501})
    assert (problem.loc[-1], problem.msg) == ("note", "the value is longer than 500 characters")


def test_arguments_with_many_things_wrong_tell_the_first_of_them() -> None:
    """Each costs more to tell than to send, and all but one request would wait while they are listed."""
    schema = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "string"}}}}
    some = argument_problems(schema, {"ids": [1] * 100})
    assert [each.loc for each in some] == [["body", "arguments", "ids", place] for place in range(MOST_PROBLEMS)]
    (one,) = argument_problems(schema, {"ids": [1] * 500_000})
    assert one == some[0]


@pytest.mark.parametrize(
    ("model", "body"), [(InputRequest, {"message": ""}), (BatchRequest, {"requests": []})], ids=["text", "list"]
)
def test_what_is_empty_and_must_not_be_is_told_so(model: type[BaseModel], body: dict[str, object]) -> None:
    """A text is no list of items to its writer."""
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body)
    assert [problem.msg for problem in field_problems(refused.value.errors())] == ["must not be empty"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"budget": []}, "Input should be an object"),
        ({"metadata": 1}, "Input should be an object"),
        ([], "Input should be an object"),
    ],
)
def test_what_is_wrong_is_told_in_words_of_json(body: object, told: str) -> None:
    """Whoever wrote a body knows no dictionary to extract fields from."""
    with pytest.raises(ValidationError) as refused:
        TurnRequest.model_validate(body)
    assert told in [problem.msg for problem in field_problems(refused.value.errors())]


def test_text_that_is_too_long_has_characters() -> None:
    """The author of a session's name is told of characters, not of items."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(ShortText).validate_python("s" * 256)
    (problem,) = field_problems(refused.value.errors())
    assert problem.msg == "must have at most 255 characters, not 256"


def test_arguments_are_read_once_however_deep_they_are() -> None:
    """What a body costs is bounded by its length: a deep one held the process for minutes."""

    def cost_s(ids: object) -> float:
        began = process_time()
        InputRequest(call_id="0.0", decision="approve", arguments={"ids": ids})
        return process_time() - began

    flat: object = ["x"] * 100_000
    deep = flat
    for _ in range(190):
        deep = [deep]
    assert cost_s(deep) < 20 * cost_s(flat)


def test_wait_counts_from_when_the_request_came() -> None:
    """A client that has waited for its turn to be made has less patience left: it must not ask again."""

    async def has_gone() -> bool:
        return False

    async def unasked(_: frozenset[str]) -> Mapping[str, Head]:
        raise AssertionError("nobody may ask")

    async def wait() -> None:
        waiter = Waiter(wait_s=5.0, has_gone=has_gone, since=monotonic() - 6.0)
        await wait_for_rest("t", waiter, Feed(), LiveEvents(None), Gathered(unasked))

    asyncio.run(wait())


@pytest.mark.parametrize(("until_end", "looks"), [(False, 0), (True, 3)])
@pytest.mark.parametrize("waiting", [("requires_action", False), ("running", True)])
def test_who_waits_for_the_end_does_not_stop_where_a_person_is_asked(
    waiting: tuple[str, bool], *, until_end: bool, looks: int
) -> None:
    """A turn that was asked to stop ends soon, although it still looks as if it waited for that person."""
    told = [waiting, waiting, ("cancelled", False)]
    asked: list[str] = []

    async def read(turn_ids: frozenset[str]) -> Mapping[str, Head]:
        status, asks_below = told[len(asked)]
        asked.extend(turn_ids)
        return {"t": Head(status=status, last_seq=1, asks_below=asks_below)}

    async def here() -> bool:
        return False

    async def wait() -> None:
        feed = Feed()
        feed.offer(LiveEvent(turn_id="t", seq=2, type="turn.requires_action", at=0.0, data="{}"))
        for _ in told:
            feed.offer(Wake.LOST)
        waiter = Waiter(wait_s=60.0, has_gone=here, until_end=until_end)
        await wait_for_rest("t", waiter, feed, LiveEvents(None), Gathered(read))

    asyncio.run(wait())
    assert len(asked) == looks


def test_last_look_at_a_turn_ends_when_the_process_stops() -> None:
    """It would otherwise outlast the process, and the client would hear nothing of its turn."""
    live = LiveEvents(None)

    async def here() -> bool:
        return False

    async def never(_turn_id: str) -> None:
        live.stop()
        await asyncio.Event().wait()

    turn: Any = SimpleNamespace(id="t")
    services: Any = SimpleNamespace(turns=SimpleNamespace(one=never), shared=SimpleNamespace(live=live))
    looked = turn_now(turn, Waiter(wait_s=600, has_gone=here), services)
    assert asyncio.run(asyncio.wait_for(looked, 30)) is turn


def test_reader_of_live_events_goes_on_though_its_failure_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is too short even for the line in the log; who waits relies on SQL until then."""
    failures: list[Exception] = [ConnectionError("no Redis")]

    def short(*_told: object) -> None:
        raise MemoryError

    async def read() -> Wake | LiveEvent:
        again = asyncio.Event()

        async def entries(_redis_url: str, _on_begin: object) -> AsyncGenerator[list[Any]]:
            if failures:
                raise failures.pop()
            again.set()
            await asyncio.Event().wait()
            yield []

        monkeypatch.setattr("api_gateway.streams.live._entries", entries)
        live = LiveEvents("redis://nowhere")
        with live.watch("t") as feed:
            reading = asyncio.create_task(live.run())
            hearing = asyncio.create_task(again.wait())
            await asyncio.wait([reading, hearing], return_when=asyncio.FIRST_COMPLETED, timeout=20)
            assert again.is_set()
            reading.cancel()
            return await feed.next(1.0)

    monkeypatch.setattr("api_gateway.streams.live._log.warning", short)
    assert asyncio.run(read()) is Wake.LOST


@pytest.mark.parametrize("told", ["7", "[7]", '[["1", 2]]', "{", '[[1, "x", "then", "{}"]]'])
def test_live_event_that_is_none_sends_its_reader_to_sql(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer worker may write another format; what it says of other turns is read all the same."""
    fine = json.dumps([[7, "turn.started", 1.0, "{}"]])
    heard = _heard(monkeypatch, [{"turn": "t", "told": told}, {"turn": "t"}, {"turn": "t", "told": fine}])
    assert heard.woken == [Wake.LOST, Wake.LOST, LiveEvent(turn_id="t", seq=7, type="turn.started", at=1.0, data="{}")]


def test_only_turns_that_come_to_rest_may_have_a_webhook_to_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is not asked about each of the many events of every turn."""
    kinds = {"one": "step.started", "two": "turn.completed", "three": "turn.requires_action", "four": "model.delta"}
    told = [{"turn": turn, "told": json.dumps([[1, kind, 1.0, "{}"]])} for turn, kind in kinds.items()]
    assert _heard(monkeypatch, told).rested == ["two", "three"]


def test_each_outage_of_live_events_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried to connect meanwhile."""
    monkeypatch.setattr("api_gateway.streams.live.BACKOFF_S", (0.0,))
    away = ConnectionError("no Redis")
    _heard(monkeypatch, [], away, away, [], away, [])
    assert caplog.text.count("live events are not available") == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What came of live events: why the waiter of ``t`` was woken, and which turns came to rest."""

    woken: list[Wake | LiveEvent]
    rested: list[str]


def _heard(monkeypatch: pytest.MonkeyPatch, *connections: list[dict[str, str]] | Exception) -> Heard:
    """Read from so many connections, one after the other, each of which gives one batch or fails."""
    left, rested = list(connections), list[str]()

    async def read() -> list[Wake | LiveEvent]:
        over = asyncio.Event()

        async def entries(_redis_url: str, _on_begin: object) -> AsyncGenerator[list[tuple[str, dict[str, str]]]]:
            if not left:
                over.set()
                await asyncio.Event().wait()
            got = left.pop(0)
            if isinstance(got, Exception):
                raise got
            yield [("1-0", fields) for fields in got]

        monkeypatch.setattr("api_gateway.streams.live._entries", entries)
        live = LiveEvents("redis://nowhere", rested.append)
        with live.watch("t") as feed:
            reading = asyncio.create_task(live.run())
            await asyncio.wait_for(over.wait(), 20)
            reading.cancel()
            feed.offer(Wake.STOPPING)
            woken = [await feed.next(20.0)]
            while woken[-1] is not Wake.STOPPING:
                woken.append(await feed.next(20.0))
            return woken[:-1]

    return Heard(woken=asyncio.run(read()), rested=rested)


def book(  # noqa: PLR0913 - one of each kind
    *,
    when: datetime | None = None,
    day: date | None = None,
    at: time | None = None,
    lasts: timedelta | None = None,
    key: UUID | None = None,
    host: IPv6Address | None = None,
    like: re.Pattern[str] | None = None,
) -> None:
    """A tool's function."""


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"when": "2026-12-01T10:00:00"}, True),
        ({"when": "2026-12-01T10:00:00+01:00"}, True),
        ({"when": "2026-12-01 10:00"}, True),
        ({"when": "tomorrow"}, False),
        ({"day": "2026-12-01"}, True),
        ({"day": "2026-13-01"}, False),
        ({"at": "09:30:00"}, True),
        ({"at": "09:30"}, True),
        ({"at": "noon"}, False),
        ({"lasts": "PT1.5S"}, True),
        ({"lasts": "-P1D"}, True),
        ({"lasts": "soon"}, False),
        ({"key": "12345678123456781234567812345678"}, True),
        ({"key": "1"}, False),
        ({"host": "fe80::1%eth0"}, True),
        ({"host": "here"}, False),
        ({"like": "(?P<word>a)"}, True),
        ({"like": "("}, False),
    ],
)
def test_person_may_say_what_a_model_may(arguments: dict[str, Any], fits: bool) -> None:
    """A value that a worker reads fits the published schema, as it was given and as it is shown; no other does."""
    tool = inspect_function(book, "book")
    assert (argument_problems(tool.schema, arguments) == []) is fits
    if fits:
        assert argument_problems(tool.schema, tool.bind(arguments).values) == []
    else:
        with pytest.raises(ArgumentsInvalid):
            tool.bind(arguments)


def test_person_may_say_what_a_model_may_to_a_tool_with_its_own_schema() -> None:
    """Its worker reads a format as a remark; a type it holds to."""
    schema = {"properties": {"to": {"type": "string", "format": "email"}}}
    registry = Registry()
    registry.add_tool(send, name="send", schema=schema, description="Sends.")
    tool, arguments = registry.tools["send"], {"to": "nobody"}
    assert tool.bind(arguments).values == arguments
    assert argument_problems(tool.schema, arguments, checks_formats=tool.checks_formats) == []
    assert argument_problems(tool.schema, {"to": 1}, checks_formats=tool.checks_formats) != []


def send(arguments: dict[str, object]) -> object:
    """A function of a tool that brings its own schema."""
    return arguments["to"]


def test_lack_of_descriptors_is_told_once_and_other_errors_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """Asyncio tries to accept thousands of times a second, and would tell of each with a traceback."""
    loop, tell = asyncio.new_event_loop(), AcceptErrors()
    lack = OSError(errno.EMFILE, "Too many open files")
    for _ in range(3):
        tell(loop, {"message": "socket.accept() out of system resource", "exception": lack})
    tell(loop, {"message": "Task exception was never retrieved", "exception": OSError("another")})
    loop.close()
    told = [(record.name, record.getMessage()) for record in caplog.records]
    assert told == [
        ("api_gateway.logs", "no more connections are accepted for now: [Errno 24] Too many open files"),
        ("asyncio", "Task exception was never retrieved"),
    ]
