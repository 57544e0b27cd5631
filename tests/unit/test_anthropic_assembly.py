"""A reply put together from its stream's events: what is no event of the provider's is a broken stream, asked again."""

from __future__ import annotations

from typing import Any

import pytest

from harness_worker.adapters.anthropic.assembly import Assembly
from harness_worker.core.text import clean_json, text_of
from harness_worker.errors import TransientError
from harness_worker.ports import ModelReply, ignore

START: dict[str, Any] = {"type": "message_start", "message": {"model": "claude-sonnet-5-5", "usage": None}}
TEXT: dict[str, Any] = {"type": "text", "text": ""}
USE: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
END: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


def begins(block: object) -> dict[str, Any]:
    """A block's start."""
    return {"type": "content_block_start", "index": 0, "content_block": block}


def goes_on(delta: object, index: int = 0) -> dict[str, Any]:
    """A block's next piece."""
    return {"type": "content_block_delta", "index": index, "delta": delta}


def ends(stop_reason: object) -> dict[str, Any]:
    """The message's end."""
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason}}


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "message_start", "message": {"model": 5}}],
        [{"type": "message_start", "message": {"model": {"a": 1}}}],
        [begins(None)],
        [begins({"type": ["text"], "text": ""})],
        [begins({"type": "text", "text": None})],
        [begins({"type": "text", "text": 5})],
        [begins({"type": "thinking", "thinking": None, "signature": "s"})],
        [begins({**USE, "id": 5})],
        [begins({**USE, "name": ["look"]})],
        [begins({**USE, "input": None})],
        [begins(TEXT), goes_on({"type": "text_delta", "text": "a"}, index=-1)],
        [begins(TEXT), goes_on({"type": "text_delta", "text": 5})],
        [begins(USE), goes_on({"type": "input_json_delta", "partial_json": 5})],
        [
            begins({"type": "thinking", "thinking": "", "signature": ""}),
            goes_on({"type": "signature_delta", "signature": 5}),
        ],
        [ends(5)],
        [ends(["x"])],
        [ends({"a": 1})],
    ],
    ids=str,
)
def test_event_of_another_shape_is_a_broken_stream(events: list[dict[str, Any]]) -> None:
    """Whatever comes of it would fail the turn later, in the database, in the next request or in the price."""
    assembly = Assembly("claude-sonnet-5-5", ignore)
    with pytest.raises(TransientError):  # noqa: PT012 - which of them says so is no rule
        for event in (START, *events, *END):
            assembly.take(event)
        assembly.reply()


def test_stop_reason_stands_though_a_later_delta_tells_none() -> None:
    """A delta of the message tells what has changed: another may tell the tokens alone."""
    assembly = Assembly("claude-sonnet-5-5", ignore)
    for event in (START, ends("max_tokens"), {**ends(None), "usage": {"output_tokens": 7}}, {"type": "message_stop"}):
        assembly.take(event)
    reply = assembly.reply()
    assert (reply.stop_reason, reply.usage.output_tokens) == ("max_tokens", 7)


def test_reply_whose_start_was_lost_is_asked_again() -> None:
    """The start tells the tokens of the input; without it the reply would count as free."""
    assembly = Assembly("claude-sonnet-5-5", ignore)
    for event in (begins(TEXT), goes_on({"type": "text_delta", "text": "a"}), *END):
        assembly.take(event)
    with pytest.raises(TransientError, match="message_start"):
        assembly.reply()


LONG = "x" * 1_000


@pytest.mark.parametrize(
    "event",
    [begins({**TEXT, "text": [LONG]}), {**begins(TEXT), "index": LONG}],
    ids=["value", "place"],
)
def test_broken_stream_is_told_without_quoting_it(event: dict[str, Any]) -> None:
    """What a proxy sends may be of any length, and hold anything."""
    assembly = Assembly("claude-sonnet-5-5", ignore)
    assembly.take(START)
    with pytest.raises(TransientError, match="broken at content_block_start") as caught:
        assembly.take(event)
    assert LONG not in str(caught.value)


def put_together(*events: dict[str, Any], start: dict[str, Any] = START) -> ModelReply:
    """The reply of a whole stream."""
    assembly = Assembly("claude-sonnet-5-5", ignore)
    for event in (start, *events, *END):
        assembly.take(event)
    return assembly.reply()


def test_deltas_of_an_unknown_kind_are_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A provider's new kind must not fill the log: a reply may have thousands."""
    odd = goes_on({"type": "hologram_delta", "hologram": "3d"})
    said = goes_on({"type": "text_delta", "text": "Hi"})
    reply = put_together(begins(TEXT), odd, said, odd)
    assert text_of(reply.content) == "Hi"
    assert caplog.text.count("hologram_delta") == 1


def test_block_of_an_unknown_kind_is_filled_by_its_deltas() -> None:
    """It is sent back, so it must be whole: a summary of the provider's own begins without its text, for example."""
    summary = {"type": "compaction", "content": None, "more": {"a": 1}}
    pieces = [goes_on({"type": "compaction_delta", "content": text}) for text in ("They ", "double.")]
    (kept,) = put_together(begins(summary), *pieces, goes_on({"type": "novel_delta", "more": {"b": 2}})).content
    assert kept == {"type": "compaction", "content": "They double.", "more": {"b": 2}}


def test_summary_of_the_providers_own_is_kept_with_what_its_delta_adds() -> None:
    """Without its opaque part, which comes after the block has begun, the provider could not read it again."""
    summary = {"type": "compaction_delta", "content": "They double.", "encrypted_content": "0x"}
    (kept,) = put_together(begins({"type": "compaction", "content": None}), goes_on(summary)).content
    assert kept == {"type": "compaction", "content": "They double.", "encrypted_content": "0x"}


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-5-5", "us.anthropic.claude-sonnet-5-5-v1:0", "latest"])
def test_model_that_a_proxy_names_otherwise_costs_what_the_one_asked_for_costs(name: str) -> None:
    """A dollar budget must not be off without a word."""
    start = {"type": "message_start", "message": {"model": name, "usage": {"input_tokens": 1_000}}}
    assert put_together(start=start).usage.dollars == pytest.approx(0.002)


def test_hours_in_the_cache_cost_more_than_minutes() -> None:
    """4 and 2.50 dollars per million."""
    usage = {"cache_creation_input_tokens": 3_000, "cache_creation": {"ephemeral_1h_input_tokens": 1_000}}
    start = {"type": "message_start", "message": {"model": "claude-sonnet-5-5", "usage": usage}}
    assert put_together(start=start).usage.dollars == pytest.approx(0.004 + 0.005)


@pytest.mark.parametrize("later", [{}, {"server_tool_use": None}, {"server_tool_use": {"web_search_requests": 2}}])
def test_searches_of_the_provider_cost_what_it_asks_for_them(later: dict[str, Any]) -> None:
    """A proxy may add the provider's web search: its price is per search, 0.01 dollars, beside the tokens."""
    usage = {"input_tokens": 1_000, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 7}}
    assembly = Assembly("claude-sonnet-5-5", ignore)
    for event in [{**START, "message": {**START["message"], "usage": usage}}, {**END[0], "usage": later}, END[1]]:
        assembly.take(event)
    assert assembly.reply().usage.dollars == pytest.approx(0.002 + 2 * 0.01)


@pytest.mark.parametrize("field", ["thinking", "signature"])
@pytest.mark.parametrize("odd", ["\x00", "\ud83d"])
def test_thought_that_no_database_holds_is_left_out(field: str, odd: str) -> None:
    """It would be sent back otherwise than it was signed, which the provider refuses in every later request."""
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert put_together(begins({**block, field: f"a{odd}b"})).content == ()
    assert put_together(begins(block)).content == (block,)


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ([["a\ud83d", "\ude00b"]], ["a", "\U0001f600b"]),
        ([["\ud83d", "\ude00"]], ["\U0001f600"]),
        ([["a\ud83d"], ["\ude00"]], ["a", "\ufffd", "\ufffd"]),
        ([["a\ud83d"]], ["a", "\ufffd"]),
        ([["\x00", "\ude00"]], ["\ufffd", "\ufffd"]),
    ],
    ids=ascii,
)
def test_text_is_told_in_whole_characters(blocks: list[list[str]], told: list[str]) -> None:
    """Half a surrogate pair is no UTF-8: whoever watches could not read it. It is told as the journal will have it."""
    heard: list[str] = []
    assembly = Assembly("claude-sonnet-5-5", heard.append)
    assembly.take(START)
    for index, pieces in enumerate(blocks):
        assembly.take({**begins(TEXT), "index": index})
        for piece in pieces:
            assembly.take(goes_on({"type": "text_delta", "text": piece}, index))
    for event in END:
        assembly.take(event)
    assert heard == told
    assert assembly.said == "".join(told) == text_of(clean_json(list(assembly.reply().content)))


@pytest.mark.parametrize("field", ["thinking", "signature"])
def test_thought_whose_surrogates_come_apart_is_kept(field: str) -> None:
    """Both halves of a character that two pieces hold are one character, as it was signed."""
    block = {"type": "thinking", "thinking": "hm", "signature": "s", field: "a\ud83d" + "\ude00b"}
    assert [each["type"] for each in put_together(begins(block)).content] == ["thinking"]


def test_blank_text_is_kept_beside_words() -> None:
    """Without it the answer's words run together; an empty text says nothing."""
    texts = ["One.", "\n\n", "Two", "", " ", "three."]
    blocks = [{"type": "text", "text": text} for text in texts]
    reply = put_together(*({**begins(block), "index": index} for index, block in enumerate(blocks)))
    assert text_of(reply.content) == "One.\n\nTwo three."
    assert len(reply.content) == 5


def test_cache_that_is_told_by_its_duration_alone_is_counted() -> None:
    """Some proxies leave the sum out."""
    usage = {"cache_creation": {"ephemeral_5m_input_tokens": 2_000, "ephemeral_1h_input_tokens": 1_000}}
    start = {"type": "message_start", "message": {"model": "claude-sonnet-5-5", "usage": usage}}
    used = put_together(start=start).usage
    assert (used.cache_write_tokens, used.dollars) == (3_000, pytest.approx(0.004 + 0.005))
