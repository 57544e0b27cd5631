"""Claude behind the model port: what is sent to the Messages API and what comes back, over real HTTP."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest

from harness_worker import Effect, Registry
from harness_worker.adapters.anthropic.client import AnthropicModel
from harness_worker.adapters.anthropic.connections import ConnectionPool
from harness_worker.adapters.anthropic.missing_key import MissingKey
from harness_worker.config import load_settings
from harness_worker.core.budget import Usage
from harness_worker.core.records import Message
from harness_worker.core.registration.thinking import ThinkLevel
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.errors import ArgumentsInvalid, ModelError
from harness_worker.testing.messages_replies import Reply, said, tool_use
from harness_worker.testing.messages_stub import PATH, MessagesStub
from harness_worker.testing.waiting import wait_until
from tests.contract.anthropic_kit import KEY, USER, asking

THINKING = {"type": "thinking", "thinking": "Which öne? \u2028 " * 9, "signature": "EqQBCkgIARABGAIiQ=="}


def a_tool() -> ToolSpec:
    """A registered tool."""
    registry = Registry()

    @registry.tool(effect=Effect.READ_ONLY)
    def get_order(order_id: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """One order."""
        return order_id

    return registry.tools["get_order"]


def test_request_carries_system_tools_history_and_cache_control(stub: MessagesStub, model: AnthropicModel) -> None:
    """It has everything the model needs and nothing else: no metadata of the turn, and the key as a bearer token."""
    stub.answer(said("Hi"))
    history = (
        USER,
        Message(role="assistant", content=[THINKING, tool_use(1, "get_order", order_id="ö1")]),
        Message(role="user", content=[{"type": "tool_result", "tool_use_id": "toolu_0001", "content": "{}"}]),
    )
    model.complete(asking(*history, tools=(a_tool(),)))
    (asked,) = stub.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["anthropic-version"]
    assert asked.body["messages"] == [{"role": each.role, "content": each.content} for each in history]
    assert asked.body["system"] == "Be kind."
    (tool,) = asked.body["tools"]
    assert (tool["name"], tool["description"]) == ("get_order", "One order.")
    assert tool["input_schema"]["properties"]["order_id"]["type"] == "string"
    assert asked.body["cache_control"] == {"type": "ephemeral"}
    assert set(asked.body) == {"model", "system", "tools", "messages", "max_tokens", "stream", "cache_control"}


@pytest.mark.parametrize(("calls", "far"), [(9, False), (10, True), (12, True)])
def test_wide_wave_has_a_breakpoint_where_the_last_request_ended(
    stub: MessagesStub, model: AnthropicModel, calls: int, *, far: bool
) -> None:
    """The provider looks back at most 20 blocks from a breakpoint; the history is otherwise sent unchanged."""
    uses = [tool_use(number, "get_order") for number in range(calls)]
    results = [{"type": "tool_result", "tool_use_id": use["id"], "content": "{}"} for use in uses]
    asked = [{"type": "text", "text": "Where"}, {"type": "text", "text": "are they?"}]
    wave = (Message(role="assistant", content=uses, position=1), Message(role="user", content=results, position=2))
    stub.answer(said("Hi"))
    model.complete(asking(Message(role="user", content=asked), *wave))
    body = stub.asked[0].body
    assert body["messages"][1:] == [{"role": each.role, "content": each.content} for each in wave]
    first, last = body["messages"][0]["content"]
    assert (first, last) == (asked[0], {**asked[1], "cache_control": {"type": "ephemeral"}} if far else asked[1])
    assert body["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize("system", ["", " \n"])
def test_request_without_system_or_tools_leaves_them_out(
    stub: MessagesStub, model: AnthropicModel, system: str
) -> None:
    """The provider refuses an empty system text."""
    stub.answer(said("Hi"))
    model.complete(asking(system=system))
    assert "system" not in stub.asked[0].body
    assert "tools" not in stub.asked[0].body


def test_history_with_calls_is_taken_from_an_agent_without_tools(stub: MessagesStub, model: AnthropicModel) -> None:
    """The provider refuses calls of a request that defines no tool; the one that is sent instead cannot be called."""
    stub.answer(said("Hi"))
    history = (
        USER,
        Message(role="assistant", content=[tool_use(1, "hand_over")]),
        Message(role="user", content=[{"type": "tool_result", "tool_use_id": "toolu_0001", "content": "{}"}]),
    )
    assert [block["type"] for block in model.complete(asking(*history)).content] == ["text"]
    assert stub.asked[0].body["tool_choice"] == {"type": "none"}


NONE_OF_THE_API: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, 404),
    (PATH, {}, 400),
]


@pytest.mark.parametrize(("path", "body", "status"), NONE_OF_THE_API)
def test_stub_answers_requests_that_are_none_of_the_api(
    stub: MessagesStub, path: str, body: dict[str, Any], status: int
) -> None:
    """Messages of another API have another shape, and a request by hand may have none."""
    assert httpx2.post(f"{stub.url}{path}", json=body).status_code == status


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_schema_goes_out_without_what_is_refused_at_its_top(
    stub: MessagesStub, model: AnthropicModel, word: str
) -> None:
    """The provider would refuse the request; the arguments are still checked against the whole schema."""

    def find(args: dict[str, Any]) -> str:
        return str(args)

    registry = Registry()
    inner = {"type": "object", "properties": {"id": {word: [{"type": "string"}]}}}
    registry.add_tool(find, name="find", schema={**inner, word: [{"required": ["id"]}]}, description="Find.")
    stub.answer(said("Hi"))
    model.complete(asking(tools=(registry.tools["find"],)))
    (tool,) = stub.asked[0].body["tools"]
    assert tool["input_schema"] == inner
    with pytest.raises(ArgumentsInvalid):
        registry.tools["find"].bind({})


@pytest.mark.parametrize("think", ["low", "medium", "high"])
def test_request_of_an_agent_that_thinks_says_how_hard(
    stub: MessagesStub, model: AnthropicModel, think: ThinkLevel
) -> None:
    """The model decides when to think; the level becomes its effort, and the token limit leaves room for thinking."""
    stub.answer(said("Hi"), said("Hm"))
    model.complete(asking(think=think))
    model.complete(asking(think=think, max_tokens=500))
    step, aside = (asked.body for asked in stub.asked)
    assert (step["thinking"], step["output_config"]) == ({"type": "adaptive"}, {"effort": think})
    assert (step["max_tokens"], aside["max_tokens"]) == (32_000, 24_308)
    assert {**step, "max_tokens": 24_308} == aside


@pytest.mark.parametrize("piece_chars", [1, 7, 10_000])
def test_reply_is_what_was_streamed(stub: MessagesStub, model: AnthropicModel, piece_chars: int) -> None:
    """Blocks come back in order and byte for byte however they were cut, including those of unknown types."""
    blocks = [
        THINKING,
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
        {"type": "text", "text": "Let me look, “quickly”.\n"},
        tool_use(1, "get_order", order_id="ö1", deep={"list": [1, 2.5, None, True, "\u0000"]}),
        tool_use(2, "list_orders"),
        {"type": "novel", "field": {"a": [1]}},
    ]
    stub.answer(Reply(content=blocks, piece_chars=piece_chars))
    reply = model.complete(asking())
    assert list(reply.content) == blocks
    assert reply.stop_reason == "tool_use"


@pytest.mark.parametrize(
    "reason",
    ["end_turn", "max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"],
)
def test_reply_has_the_providers_stop_reason(stub: MessagesStub, model: AnthropicModel, reason: str) -> None:
    """Stop reasons are passed on unchanged; the turn's rules judge them."""
    stub.answer(said("So", stop_reason=reason))
    assert model.complete(asking()).stop_reason == reason


def test_reply_counts_four_classes_of_tokens_and_their_price(stub: MessagesStub, model: AnthropicModel) -> None:
    """Cumulative counts replace each other; dollars follow from four prices: 2, 10, 2.50 and 0.10 per million."""
    usage = {
        "input_tokens": 1_000,
        "cache_creation_input_tokens": 2_000,
        "cache_read_input_tokens": 10_000,
        "output_tokens": 300,
    }
    stub.answer(said("Hi", usage=usage))
    counted = model.complete(asking()).usage
    assert counted.dollars == pytest.approx(0.002 + 0.005 + 0.001 + 0.003)
    assert counted == Usage(
        input_tokens=1_000,
        output_tokens=300,
        cache_read_tokens=10_000,
        cache_write_tokens=2_000,
        dollars=counted.dollars,
    )


def test_reply_of_a_model_without_price_costs_nothing_and_says_so_once(
    stub: MessagesStub, model: AnthropicModel, caplog: pytest.LogCaptureFixture
) -> None:
    """A model without a known price still answers; the log says once that its dollars are not counted."""
    stub.answer(said("Hi"), said("Hi"))
    for _ in range(2):
        assert model.complete(asking(model="claude-from-the-future")).usage.dollars == 0
    assert caplog.text.count("no price is known for the model 'claude-from-the-future'") == 1


def test_text_is_told_as_it_comes(stub: MessagesStub, model: AnthropicModel) -> None:
    """Each delta of text is reported at once, in the calling thread; thinking and arguments are not."""
    told: list[tuple[str, int]] = []

    def hear(text: str) -> None:
        told.append((text, threading.get_ident()))

    stub.answer(Reply(content=[THINKING, {"type": "text", "text": "one two"}, tool_use(1, "x", a=1)], piece_chars=4))
    model.complete(asking(on_text=hear))
    assert told == [("one ", threading.get_ident()), ("two", threading.get_ident())]


def test_empty_text_is_not_kept(stub: MessagesStub, model: AnthropicModel) -> None:
    """The provider may send an empty text but refuses to receive one, which would end the turn at its next step."""
    stub.answer(Reply(content=[{"type": "text", "text": ""}, tool_use(1, "x")]))
    assert [block["type"] for block in model.complete(asking()).content] == ["tool_use"]


def test_connection_is_used_again(stub: MessagesStub, model: AnthropicModel) -> None:
    """Successive calls share a connection, because a TLS handshake costs two round trips."""
    stub.answer(said("a"), said("b"))
    model.complete(asking())
    wait_until(lambda: "model-call" not in [thread.name for thread in threading.enumerate()], "the stream's very end")
    model.complete(asking())
    assert len({asked.connection for asked in stub.asked}) == 1


def test_missing_key_names_the_variable() -> None:
    """Without a key the turn fails with a message that says whom a name such as 'gpt-4o' goes to, and what to set."""
    said = "the model 'claude-sonnet-5-5' is asked over Anthropic's API, which needs a key: set ANTHROPIC_API_KEY"
    with pytest.raises(ModelError, match=said):
        MissingKey().complete(asking())


def test_empty_base_url_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every other setting; the library by itself would ask a URL without a host."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "")
    connection = ConnectionPool(KEY, load_settings().anthropic_base_url).take()
    assert connection.client.base_url == "https://api.anthropic.com"
    connection.close()
