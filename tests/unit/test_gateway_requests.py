"""What the gateway reads from requests, and in which words it refuses."""

from __future__ import annotations

import base64
import json
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from api_gateway.batches.requests import BatchRequest
from api_gateway.openai_facade.requests import ChatRequest, ResponseRequest
from api_gateway.problems import MOST_PROBLEMS, Problem, field_problems
from api_gateway.requests.body import MOST_LISTED, parsed_body
from api_gateway.requests.cursors import Cursor, format_cursor, parse_cursor
from api_gateway.requests.fields import ShortText
from api_gateway.requests.json_object import digest, parse_object
from api_gateway.requests.turns import ForkRequest, InputRequest, TurnRequest


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
        began = thread_time()
        InputRequest(call_id="0.0", decision="approve", arguments={"ids": ids})
        return thread_time() - began

    flat: object = ["x"] * 100_000
    deep = flat
    for _ in range(190):
        deep = [deep]
    assert cost_s(deep) < 20 * cost_s(flat)
