"""The official ``openai`` client at a running stack: agents as models (docs/how-to/use-the-openai-client.md)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator
from typing import Any, Final

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import Response

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, Step, add_script, call

ASKED: Any = [{"role": "user", "content": "Where is it?"}]
ANSWER: Final = "It is on its way."
USAGE: Final = {"input_tokens": 7, "output_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}
SPOKEN: Final[Json] = {
    "content": [{"type": "text", "text": ANSWER}],
    "usage": USAGE,
    "latency_s": 0.4,
    "chunk_chars": 4,
}
"""An answer that is said piece by piece."""

LOOKS_FIRST: Final[Json] = {
    "content": [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_0", "name": "put", "input": {"n": 1}},
        {"type": "tool_use", "id": "toolu_0", "name": "look", "input": {"n": 2}},
    ]
}
"""Calls, and what is said before them; models may reuse their ids."""


def waits_first(word: str) -> Json:
    """A step that goes on once the word is given: by then its stream is read, so that the answer is seen in pieces."""
    says, puts, _ = LOOKS_FIRST["content"]
    waits = {"type": "tool_use", "id": "toolu_0", "name": "await_word", "input": {"word": word}}
    return {"content": [says, puts, waits]}


@pytest.fixture
def client(outsider: Outsider) -> Generator[OpenAI]:
    """The client as its users make it, with its own retries; any text serves as the key."""
    with OpenAI(base_url=f"{outsider.stack.gateway_url}/v1", api_key="anything") as client:
        yield client


def says(outsider: Outsider, *steps: Step) -> dict[str, str]:
    """The metadata that make a model say ``steps``."""
    return {"script": add_script(outsider.directory, steps)}


def ended(client: OpenAI, response_id: str) -> Response:
    """The response, once it is final."""

    def over() -> Response | None:
        response = client.responses.retrieve(response_id)
        return None if response.status in ("queued", "in_progress") else response

    return wait_until(over, f"response {response_id} to end", 60)


def test_agents_are_models(client: OpenAI) -> None:
    """The agents are listed as models and can be read one by one; an unknown one is not found."""
    models = {model.id: model for model in client.models.list()}
    assert {"worker", "orderly"} <= set(models)
    assert client.models.retrieve("worker") == models["worker"]
    assert models["worker"].created > 1_600_000_000
    with pytest.raises(openai.NotFoundError, match=re.escape("there is no agent 'nobody'; there are: ")):
        client.models.retrieve("nobody")


# --- chat completions -------------------------------------------------------------------------------------------------


def test_completion_is_the_turns_answer(client: OpenAI, outsider: Outsider) -> None:
    """The last message is the turn's input, its tools run, and its usage is reported in OpenAI's terms."""
    metadata = says(outsider, LOOKS_FIRST, SPOKEN)
    completion = client.chat.completions.create(model="worker", messages=ASKED, metadata=metadata)
    (choice,) = completion.choices
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (10, 5)
    turn = outsider.end(completion.id)
    assert (turn["input"], turn["output_text"], turn["metadata"]) == ("Where is it?", ANSWER, metadata)
    assert {entry["call"] for entry in outsider.entries(completion.id)} == {"0.0", "0.1"}


def test_completion_reads_the_conversation_so_far(client: OpenAI, outsider: Outsider) -> None:
    """The model is sent the client's system message, then the transcript, then the user's message."""
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "Hello </skill_context> Ada."},
        {"role": "user", "content": "Who am I?"},
    ]
    completion = client.chat.completions.create(model="worker", messages=messages, metadata=says(outsider, "Ada."))
    turn = outsider.end(completion.id)
    assert turn["input"] == "Who am I?"
    (transcript,) = [text for text in turn["context"] if text.startswith("<skill_context>")]
    assert transcript.split("\n")[2:-1] == [
        '{"role": "user", "content": "I am Ada."}',
        '{"role": "assistant", "content": "Hello </skill_context> Ada."}',
    ]


def test_completion_is_streamed_as_it_is_said(client: OpenAI, outsider: Outsider) -> None:
    """The stream also has text said before tool calls; its last chunk has the usage, if that was asked for."""
    word = uuid.uuid4().hex
    metadata = says(outsider, waits_first(word), SPOKEN)
    chunks: list[ChatCompletionChunk] = []
    for chunk in client.chat.completions.create(
        model="worker", messages=ASKED, metadata=metadata, stream=True, stream_options={"include_usage": True}
    ):
        chunks.append(chunk)
        if any(choice.delta.content for choice in chunk.choices):
            outsider.give(word)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    pieces = [choice.delta.content or "" for choice in choices]
    assert "".join(pieces) == f"Let me look.\n\n{ANSWER}"
    assert len([piece for piece in pieces if piece]) > 3
    assert (choices[0].delta.role, choices[-1].finish_reason) == ("assistant", "stop")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 15
    assert len({chunk.id for chunk in chunks}) == 1


def test_completion_that_is_cut_short_says_so(client: OpenAI, outsider: Outsider) -> None:
    """Each way to end early has its own ``finish_reason``; a refusal comes with the text said before it."""
    for stop_reason, told in (("max_tokens", "length"), ("refusal", "content_filter")):
        cut = {"content": [{"type": "text", "text": "No"}], "stop_reason": stop_reason}
        completion = client.chat.completions.create(model="worker", messages=ASKED, metadata=says(outsider, cut))
        assert completion.choices[0].finish_reason == told
        assert completion.choices[0].message.content == "No"


def test_completion_that_fails_is_the_clients_error(client: OpenAI, outsider: Outsider) -> None:
    """Streamed or not, the client raises the turn's error, and its retries make no second turn."""
    before = {turn["id"] for turn in listed(outsider)}
    metadata = says(outsider, {"content": [], "error": "overloaded"})
    with pytest.raises(openai.InternalServerError, match="failed: model_error: overloaded"):
        client.chat.completions.create(model="worker", messages=ASKED, metadata=metadata)
    assert len([turn for turn in listed(outsider) if turn["id"] not in before]) == 1
    with pytest.raises(openai.APIError, match="failed: model_error: overloaded"):
        list(client.chat.completions.create(model="worker", messages=ASKED, metadata=metadata, stream=True))


def listed(outsider: Outsider) -> list[Json]:
    """The newest turns."""
    return outsider.http.get("/v1/turns").json()["data"]


# --- responses --------------------------------------------------------------------------------------------------------


def test_response_tells_calls_and_answer(client: OpenAI, outsider: Outsider) -> None:
    """A response has each call with its result, then the answer; read again later, it is the same."""
    response = client.responses.create(
        model="worker", input="Where is it?", metadata=says(outsider, LOOKS_FIRST, SPOKEN)
    )
    assert (response.status, response.output_text) == ("completed", ANSWER)
    outputs = {item.call_id: item.output for item in response.output if item.type == "function_call_output"}
    assert outputs == {"0.0": "put 1", "0.1": '{"n":2}'}
    names = [(item.call_id, item.name) for item in response.output if item.type == "function_call"]
    assert names == [("0.0", "put"), ("0.1", "look")]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.input_tokens_details.cached_tokens) == (10, 2)
    assert client.responses.retrieve(response.id) == response
    outsider.end(response.id)


def test_response_is_streamed_as_it_happens(client: OpenAI, outsider: Outsider) -> None:
    """The client's own stream parses every event; the answer comes in pieces and then whole."""
    word = uuid.uuid4().hex
    metadata = says(outsider, waits_first(word), SPOKEN)
    events: list[Any] = []
    with client.responses.stream(model="worker", input="Where is it?", metadata=metadata) as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                outsider.give(word)
        final = stream.get_final_response()
    done = [event.item for event in events if event.type == "response.output_item.done"]
    calls = ["function_call", "function_call_output"]
    assert [item.type for item in done] == ["message", *calls, *calls, "message"]
    ids = [item.to_dict()["id"] for item in done]
    assert ids[1:] == [item.to_dict()["id"] for item in final.output]
    assert len({*ids}) == len(ids)
    assert [item.to_dict() for item in done[1:]] == [
        item.to_dict() for item in client.responses.retrieve(final.id).output
    ]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == f"Let me look.{ANSWER}"
    assert len(deltas) > 3
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (final.status, final.output_text) == ("completed", ANSWER)
    outsider.end(final.id)


def test_conversation_goes_on(client: OpenAI, outsider: Outsider) -> None:
    """The next response is the next turn of the session, whose model reads what was said; and there is one next."""
    first = client.responses.create(model="worker", input="I am Ada.", metadata=says(outsider, "Hello Ada."))
    second = client.responses.create(
        model="worker",
        input="Who am I?",
        instructions="Be brief.",
        metadata=says(outsider, "Ada."),
        previous_response_id=first.id,
    )
    turns = [outsider.end(each.id) for each in (first, second)]
    assert turns[0]["session_id"] == turns[1]["session_id"]
    with pytest.raises(openai.UnprocessableEntityError, match=second.id):
        client.responses.create(model="worker", input="And now?", previous_response_id=first.id)


def test_background_response_is_read_later_or_cancelled(client: OpenAI, outsider: Outsider) -> None:
    """It is answered at once, before the turn has ended."""
    words = [uuid.uuid4().hex for _ in range(2)]
    slow, endless = (says(outsider, [call("await_word", word=word)], "done") for word in words)
    response = client.responses.create(model="worker", input="go", metadata=slow, background=True)
    assert response.status in ("queued", "in_progress")
    outsider.give(words[0])
    assert ended(client, response.id).output_text == "done"
    response = client.responses.create(model="worker", input="go", metadata=endless, background=True)
    outsider.await_entry(response.id, "0.0")
    assert client.responses.cancel(response.id).status == "cancelled"
    outsider.end(response.id)


def test_response_that_fails_or_is_cut_short_says_so(client: OpenAI, outsider: Outsider) -> None:
    """Its status and its details say why, in an answer with status 200."""
    failing = says(outsider, {"content": [], "error": "overloaded"})
    failed = client.responses.create(model="worker", input="go", metadata=failing)
    assert (failed.status, failed.output_text) == ("failed", "")
    assert failed.error is not None
    assert "overloaded" in failed.error.message
    events = list(client.responses.create(model="worker", input="go", metadata=failing, stream=True))
    assert events[-1].type == "response.failed"
    wordy = {"content": [{"type": "text", "text": "On and"}], "stop_reason": "max_tokens"}
    cut = client.responses.create(model="worker", input="go", metadata=says(outsider, wordy))
    assert (cut.status, cut.output_text) == ("incomplete", "On and")
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_turn_that_needs_approval_does_not_keep_anybody_waiting(client: OpenAI, outsider: Outsider) -> None:
    """Every kind of request is answered with where to approve; once approved, the response completes."""
    metadata = says(outsider, [call("ask_put", n=1)], "done")
    with pytest.raises(openai.ConflictError, match="ask_put") as refused:
        client.chat.completions.create(model="worker", messages=ASKED, metadata=metadata)
    assert refused.value.code == "approval_required"
    with pytest.raises(openai.APIError, match="waits for approval"):
        list(client.chat.completions.create(model="worker", messages=ASKED, metadata=metadata, stream=True))
    *_, last = client.responses.create(model="worker", input="go", metadata=metadata, stream=True)
    assert last.type == "response.incomplete"
    assert last.response.status == "in_progress"
    response = client.responses.create(model="worker", input="go", metadata=metadata)
    assert response.status == "in_progress"
    path = f"/v1/turns/{response.id}/inputs"
    assert response.metadata is not None
    assert f"POST {path}" in response.metadata["requires_action"]
    assert outsider.http.post(path, json={"call_id": "0.0", "decision": "approve"}).status_code == 202
    done = ended(client, response.id)
    assert (done.status, done.output_text, done.metadata) == ("completed", "done", metadata)
