"""Long bodies of requests: how much of them there may be, and how many are worked on at once."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from api_gateway.batches.requests import MOST_REQUESTS, BatchRequest
from api_gateway.problems import Problem
from api_gateway.requests.body import LONG, parsed_body
from api_gateway.requests.json_object import MOST_VALUES, may_have_more_values
from api_gateway.requests.places import READ_AT_ONCE, BodyPlaces
from api_gateway.requests.turns import TurnRequest
from api_gateway.routes.dependencies import body_of
from harness_worker.validation import MAX_METADATA_PAIRS

SETTINGS: Final = SimpleNamespace(body_idle_s=30.0, max_body_bytes=10_000_000)
TURN: Final = json.dumps({"agent": "a", "input": "x" * LONG}).encode()

_TEXTS = st.text(st.sampled_from('a,[]{}:"\\\n'), max_size=8)
_JSON = st.recursive(
    st.none() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXTS, inner, max_size=5),
    max_leaves=30,
)


def values_in(value: Any) -> int:  # noqa: ANN401 - any JSON value
    """How many JSON values there are, itself included."""
    inner = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else value
    return 1 + (sum(map(values_in, cast("list[Any]", inner))) if isinstance(inner, list) else 0)


@given(_JSON, st.booleans())
def test_values_are_counted_without_making_any(value: Any, ascii_only: bool) -> None:  # noqa: ANN401 - any JSON
    """Never fewer than there are, and at most twice as many, whatever the texts hold."""
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    there = values_in(value)
    assert may_have_more_values(raw, there - 1)
    assert not may_have_more_values(raw, 2 * there)


@pytest.mark.parametrize("item", ["[]", "{}", '""', "1", "[1]", '{"a":[]}'])
def test_body_of_very_many_values_is_too_large(item: str) -> None:
    """It would cost seconds, in which nobody else is served, and a hundred times its size in memory."""
    raw = f'{{"agent":"a","input":"b","x":[{",".join([item] * (MOST_VALUES + 1))}]}}'.encode()
    with pytest.raises(Problem, match=f"more than {MOST_VALUES} JSON values") as refused:
        parsed_body(TurnRequest, raw, with_digest=False)
    assert refused.value.code == "payload_too_large"


def test_long_text_is_one_value() -> None:
    """It does not matter what is in the text."""
    text = '1,2,[3],{4}\\",' * (MOST_VALUES // 4)
    assert (
        parsed_body(TurnRequest, json.dumps({"agent": "a", "input": text}).encode(), with_digest=False).value.input
        == text
    )


def test_largest_batch_is_taken() -> None:
    """Every turn of it may have every field and all of its metadata."""
    budget = dict.fromkeys(
        ("max_steps", "max_tool_calls", "max_reflections", "max_tokens", "max_dollars", "timeout_s"), 1
    )
    texts = dict.fromkeys(("agent", "input", "session_id", "system_prompt_override", "skill_context"), "x")
    chosen = {"priority": "batch", "multitask": "enqueue", "webhook": "https://a.example/", "parallel": True}
    metadata = {str(number): "" for number in range(MAX_METADATA_PAIRS)}
    params = {**texts, **chosen, "budget": budget, "metadata": metadata}
    raw = json.dumps({"requests": [{"custom_id": str(n), "params": params} for n in range(MOST_REQUESTS)]}).encode()
    assert len(parsed_body(BatchRequest, raw, with_digest=True).value.requests) == MOST_REQUESTS


def begun(places: BodyPlaces, tenant: str, begin: bytes) -> tuple[asyncio.Task[TurnRequest], asyncio.Queue[Any]]:
    """The reading of a body, and where what follows its beginning comes from."""
    coming: asyncio.Queue[Any] = asyncio.Queue()
    coming.put_nowait({"type": "http.request", "body": begin, "more_body": True})
    app = SimpleNamespace(state=SimpleNamespace(shared=SimpleNamespace(settings=SETTINGS, body_places=places)))
    scope: dict[str, Any] = {"type": "http", "method": "POST", "headers": [], "app": app, "state": {"tenant": tenant}}
    reading = body_of(TurnRequest)(Request(scope, coming.get))
    return asyncio.ensure_future(reading), coming


def test_long_bodies_of_a_tenant_wait_for_each_other() -> None:
    """Only so many are read at once; a short one and those of other tenants wait for none of them."""

    async def run() -> None:
        places, cut = BodyPlaces(), LONG + 5
        end = {"type": "http.request", "body": TURN[cut:], "more_body": False}
        first, *others = [begun(places, "a", TURN[:cut]) for _ in range(READ_AT_ONCE)]
        late, theirs, short = begun(places, "a", TURN[:cut]), begun(places, "b", TURN[:cut]), begun(places, "a", b"")
        late[1].put_nowait(end)
        theirs[1].put_nowait(end)
        short[1].put_nowait({"type": "http.request", "body": b'{"agent":"a","input":"b"}', "more_body": False})
        await asyncio.wait_for(asyncio.gather(theirs[0], short[0]), 30)
        assert not late[0].done()
        first[1].put_nowait(end)
        await asyncio.wait_for(asyncio.gather(first[0], late[0]), 30)
        for _, coming in others:
            coming.put_nowait(end)
        await asyncio.gather(*(reading for reading, _ in others))

    asyncio.run(run())


def test_body_that_finds_no_place_is_sent_back() -> None:
    """The client may come again soon: it is told so, and its connection is closed, for the rest is not read."""

    async def run() -> None:
        places = BodyPlaces(patience_s=0.01)
        async with AsyncExitStack() as held:
            for _ in range(READ_AT_ONCE):
                await held.enter_async_context(places.reading("a"))
            with pytest.raises(Problem) as refused:
                async with places.reading("a"):
                    pass
        assert (refused.value.code, refused.value.headers) == ("not_ready", {"Retry-After": "5", "Connection": "close"})
        async with places.reading("a"):
            pass

    asyncio.run(run())
