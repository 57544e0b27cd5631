"""Whole turns on Claude's adapter, in one process, against a stub of the Messages API."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from harness_worker import AgentHarness, Deny, Effect, Hooks, Registry, Settings
from harness_worker.adapters.anthropic import silence
from harness_worker.core.registration.hooks import PreToolUse
from harness_worker.testing.messages_replies import Ending, Refusal, Reply, said, tool_use
from harness_worker.testing.messages_stub import MessagesStub
from harness_worker.turn.inline import InlineDispatcher

THINKING = {"type": "thinking", "thinking": "Hm, let me see.", "signature": "EqQBCkgIARABGAI="}


class NoReading(Hooks):
    """Hooks that deny every reading of an artifact."""

    def on_pre_tool_use(self, event: PreToolUse) -> Deny | None:
        """See ``Hooks.on_pre_tool_use``."""
        return Deny(reason="not here") if event.tool == "read_artifact" else None


def a_registry(*hooks: Hooks, **options: Any) -> Registry:  # noqa: ANN401 - any of an agent's
    """One agent on Claude, with two tools."""
    registry = Registry()

    @registry.tool(effect=Effect.READ_ONLY)
    def double(number: int) -> int:  # pyright: ignore[reportUnusedFunction]
        """Twice a number."""
        return 2 * number

    @registry.tool(effect=Effect.READ_ONLY)
    def count(until: int) -> str:  # pyright: ignore[reportUnusedFunction]
        """Numbers, a line each."""
        return "\n".join(f"{number:06}" for number in range(until))

    tools = ["double", "count"]
    registry.agent("clerk", model="claude-sonnet-5-5", system="Count.", tools=tools, hooks=hooks, **options)
    return registry


@pytest.fixture
def settings(stub: MessagesStub, tmp_path: Path) -> Settings:
    """A fake key, and the stub's address."""
    return Settings.model_validate(
        {"home": tmp_path, "anthropic_api_key": "sk-ant-fake", "anthropic_base_url": stub.url}
    )


@pytest.fixture
def harness(settings: Settings) -> Generator[AgentHarness]:
    """The harness in this process, with a fake key."""
    harness = AgentHarness(a_registry(), settings)
    yield harness
    harness.close()


def messages_of(stub: MessagesStub, number: int) -> list[dict[str, Any]]:
    """The messages in a request to the model."""
    return list(stub.asked[number].body["messages"])


def test_turn_sends_back_what_was_said_and_one_result_a_call(stub: MessagesStub, harness: AgentHarness) -> None:
    """The second request is the first with the model's message unchanged, thinking included, and with the results."""
    spoken = [THINKING, {"type": "text", "text": "I'll count."}, tool_use(1, "double", number=4), tool_use(2, "double")]
    stub.answer(Reply(content=spoken), said("Eight.", usage={"cache_read_input_tokens": 7, "output_tokens": 3}))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.output_text) == ("completed", "Eight.")
    first, second = messages_of(stub, 0), messages_of(stub, 1)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": spoken}
    good, bad = second[-1]["content"]
    assert (good["tool_use_id"], good["content"]) == ("toolu_0001", "8")
    assert bad["content"].startswith("denied: validation: ")
    assert bad["is_error"]
    for part in ("system", "tools", "model"):
        assert stub.asked[0].body[part] == stub.asked[1].body[part]
    assert result.usage.cache_read_tokens == 7
    assert result.usage.dollars > 0


def test_turn_goes_on_after_a_pause(stub: MessagesStub, harness: AgentHarness) -> None:
    """``pause_turn`` is no answer: the message is sent back unchanged, and the model continues."""
    stub.answer(said("Let me search.", stop_reason="pause_turn"), said("Found it."))
    result = harness.run_turn(None, "Search.")
    assert (result.status, result.output_text, result.usage.steps) == ("completed", "Found it.", 2)
    assert messages_of(stub, 1)[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Let me search."}]}


def test_pause_is_sent_back_without_whitespace_at_its_end(stub: MessagesStub, harness: AgentHarness) -> None:
    """Providers refuse it at the very end of a request; the next request begins with that one all the same."""
    stub.answer(said("Let me search. \n", stop_reason="pause_turn"), said("Found it.\n"), said("Bye."))
    harness.run_turn("s", "Search.")
    harness.run_turn("s", "Thanks.")
    second, third = messages_of(stub, 1), messages_of(stub, 2)
    assert second[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Let me search."}]}
    assert third[: len(second)] == second
    assert third[len(second)] == {"role": "assistant", "content": [{"type": "text", "text": "Found it.\n"}]}


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens"])
def test_session_goes_on_after_a_reply_that_was_only_thought(
    stub: MessagesStub, harness: AgentHarness, reason: str
) -> None:
    """Providers refuse messages that end in thinking; the text that the user was told takes its place."""
    stub.answer(Reply(content=[THINKING, *said("\n\n").content], stop_reason=reason), said("Hello."))
    first = harness.run_turn("s", "Double four.")
    assert harness.run_turn("s", "Hello?").output_text == "Hello."
    assert messages_of(stub, 1)[1] == {"role": "assistant", "content": [{"type": "text", "text": first.output_text}]}


def test_blank_text_is_said_and_not_sent_back(stub: MessagesStub, harness: AgentHarness) -> None:
    """Users get blank text unchanged; it is never sent back, because the provider refuses blank blocks."""
    texts = [{"type": "text", "text": text} for text in ("First.", "\n\n", "Second", " ", "words.")]
    stub.answer(Reply(content=[*texts, THINKING, texts[1], tool_use(1, "double", number=4)]), Reply(content=texts))
    stub.answer(said("Bye."))
    first = harness.run_turn("s", "Double four.")
    assert first.output_text == "First.\n\nSecond words."
    harness.run_turn("s", "Thanks.")
    second, third = messages_of(stub, 1), messages_of(stub, 2)
    assert second[1]["content"] == [*texts[::2], THINKING, tool_use(1, "double", number=4)]
    assert third[: len(second)] == second
    assert third[len(second)] == {"role": "assistant", "content": texts[::2]}


def called(message: dict[str, Any]) -> list[str]:
    """The call ids in a message's calls or results."""
    return [block.get("id") or block["tool_use_id"] for block in message["content"]]


def test_ids_and_names_that_the_provider_refuses_are_sent_otherwise(stub: MessagesStub, harness: AgentHarness) -> None:
    """Ids are made unique, and ids and names limited to allowed characters; results keep matching their calls."""
    first = [tool_use(1, "double", number=n) for n in (4, 5)]
    odd = [{**tool_use(2, "a b!"), "id": "x.y"}, {**first[0], "id": ""}, {**first[0], "name": ""}]
    stub.answer(Reply(content=first), Reply(content=odd), said("Done."), said("Hi."))
    turn = harness.run_turn("s", "Double.")
    harness.run_turn("s", "Hello?")
    assert [call.tool for call in turn.calls] == ["double", "double", "a b!", "double", ""]
    requests = [messages_of(stub, number) for number in range(4)]
    assert all(later[: len(each)] == each for each, later in pairwise(requests))
    once, twice = ["toolu_0001", "toolu_0001_2"], ["x_y", "call", "toolu_0001_3"]
    assert [called(each) for each in requests[2][1:]] == [once, once, twice, twice]
    assert [block["content"] for block in requests[2][2]["content"]] == ["8", "10"]
    assert [block["name"] for block in requests[2][3]["content"]] == ["a_b_", "double", "unnamed"]


def marked(stub: MessagesStub, number: int) -> list[int]:
    """Which of a request's messages have a cache breakpoint."""
    messages = messages_of(stub, number)
    return [at for at, each in enumerate(messages) if any("cache_control" in block for block in each["content"])]


@pytest.mark.parametrize("reason", ["tool_use", "max_tokens"])
def test_breakpoint_is_where_the_last_request_ended_though_its_turn_was_cut_short(
    stub: MessagesStub, settings: Settings, reason: str
) -> None:
    """The last results and closing text of a turn cut short were never sent, so the provider has not cached them."""
    harness = AgentHarness(a_registry(budget={"max_steps": 1, "max_tool_calls": 99}), settings)
    stub.answer(Reply(content=[tool_use(n, "double", number=n) for n in range(12)], stop_reason=reason), said("Hi."))
    harness.run_turn("s", "Double.")
    harness.run_turn("s", "Hello?")
    harness.close()
    assert [each["role"] for each in messages_of(stub, 1)] == ["user", "assistant", "user", "assistant", "user"]
    assert marked(stub, 1) == [0]


def test_breakpoint_is_where_the_last_request_ended_after_pauses(stub: MessagesStub, harness: AgentHarness) -> None:
    """The request before ended with the first pause's message, so that is how far the provider's cache reaches."""
    texts = [{"type": "text", "text": "Searching."}] * 24
    stub.answer(Reply(content=texts[:16], stop_reason="pause_turn"), Reply(content=texts, stop_reason="pause_turn"))
    stub.answer(said("Found."))
    harness.run_turn(None, "Search.")
    assert [marked(stub, number) for number in range(3)] == [[], [], [1]]


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_turn_cut_short_is_incomplete_and_runs_nothing(stub: MessagesStub, harness: AgentHarness, reason: str) -> None:
    """The text said so far stands, and no call of the message that was cut short runs."""
    stub.answer(Reply(content=[{"type": "text", "text": "So f"}, tool_use(1, "double", number=4)], stop_reason=reason))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.stop_reason, result.output_text) == ("incomplete", reason, "So f")
    assert [call.content.partition(" ")[2][:7] for call in result.calls] == ["not_run"]


def test_session_goes_on_after_a_refusal(stub: MessagesStub, harness: AgentHarness) -> None:
    """The refused text is not sent again, because it would be refused every time; what the tools did is."""
    stub.answer(said("Hello."), said("I c", stop_reason="refusal"), said("Yes."))
    stub.answer(Reply(content=[THINKING, tool_use(1, "double", number=4)]), Reply(content=[], stop_reason="refusal"))
    stub.answer(said("Hi."))
    turns = [harness.run_turn("s", words) for words in ("Hi.", "Bad.", "Well?", "Worse.", "Hello?")]
    ends = ["end_turn", "refusal", "end_turn", "refusal", "end_turn"]
    assert [turn.stop_reason for turn in turns] == ends
    before, again, last = messages_of(stub, 0), messages_of(stub, 2), messages_of(stub, 5)
    assert again[: len(before)] == before
    assert [each["role"] for each in again] == ["user", "assistant", "user"]
    assert last[: len(again)] == again
    assert [each["role"] for each in last[len(again) :]] == [
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert called(last[5]) == called(last[6]) == ["toolu_0001"]
    assert not any(words in str(last) for words in ("Bad.", "Worse.", "I c", "Hm, let me see."))


def test_memory_and_judge_survive_a_rate_limit(
    stub: MessagesStub, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Models of judges and of memory are asked again after a rate limit, as a turn's model is, and the log says so."""
    registry = a_registry()
    registry.judge("relevance", model="claude-haiku-5-5")
    registry.agent("guide", model="claude-sonnet-5-5", judges=["relevance"], memory="claude-haiku-5-5")
    busy = Refusal(status=429, kind="rate_limit_error", message="slow down", headers={"retry-after": "0"})
    stub.answer(said("Hi Ann."), busy, said('{"memories": [{"kind": "fact", "text": "Is called Ann."}]}'))
    stub.answer(busy, said('{"score": 1, "reason": "so"}'), said("Ann."), said('{"memories": []}'))
    harness = AgentHarness(registry, settings)
    first = harness.run_turn(None, "I am Ann.", agent="guide", metadata={"user": "ann"})
    (score,) = harness.scores(first.id)
    assert (score.score, score.attempt) == (1.0, 1)
    for what in ("the memory", "judge relevance"):
        assert f"model call of {what} of turn {first.id} failed (try 1), trying again" in caplog.text
    again = harness.run_turn(None, "What is my name?", agent="guide", metadata={"user": "ann"})
    assert "- Is called Ann." in "".join(again.context)
    harness.close()


def test_turn_survives_faults_that_pass(
    stub: MessagesStub, harness: AgentHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Overload and a broken connection are retried unseen: one step, one message. The log tells of which turn."""
    busy = Refusal(status=529, kind="overloaded_error", message="Overloaded", headers={"retry-after": "0"})
    stub.answer(busy, said("Eig", ending=Ending.CUT, after=3), said("Eight."))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.output_text, result.usage.steps) == ("completed", "Eight.", 1)
    assert len(stub.asked) == 3
    assert f"model call of turn {result.id} failed (try 2), trying again" in caplog.text


def test_turn_survives_a_stream_that_stalls(
    stub: MessagesStub, harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled stream is retried within the turn's time; a stream that continues may take all of that time."""
    monkeypatch.setattr(silence, "PAUSE_S", 1.0)
    stub.answer(said("Eig", ending=Ending.HANG, after=3), said("Eight is what it is.", piece_chars=1, pause_s=0.1))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.output_text, result.usage.steps) == ("completed", "Eight is what it is.", 1)
    assert len(stub.asked) == 2


def test_turn_that_is_refused_says_why(stub: MessagesStub, harness: AgentHarness) -> None:
    """If the provider refuses the request for good, the turn fails with the provider's message."""
    stub.answer(Refusal(status=401, kind="authentication_error", message="invalid bearer token"))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.stop_reason) == ("failed", "model_error")
    assert result.error == {
        "code": "model_error",
        "message": "the model's provider answered 401 authentication_error: invalid bearer token (request req_1)",
    }


def test_turn_without_key_says_which_variable_to_set(tmp_path: Path) -> None:
    """The turn's error names the variable, so that nobody has to read a log."""
    harness = AgentHarness(a_registry(), Settings(home=tmp_path))
    result = harness.run_turn(None, "Double four.")
    assert result.stop_reason == "model_error"
    assert "set ANTHROPIC_API_KEY" in str(result.error)
    harness.close()


def test_key_from_a_file_is_sent_without_its_newline(
    stub: MessagesStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that hold secrets usually end with a newline."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-fake\n")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"{stub.url}\n")
    stub.answer(said("Eight."))
    harness = AgentHarness(a_registry(), Settings(home=tmp_path))
    assert harness.run_turn(None, "Double four.").output_text == "Eight."
    assert stub.asked[0].headers["authorization"] == "Bearer sk-ant-fake"
    harness.close()


def test_key_that_no_header_may_hold_is_shown_to_nobody(
    stub: MessagesStub, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn's error and the log say what is wrong without the key, and there is no retry."""
    broken = SecretStr("sk-ant\nSECRET")
    harness = AgentHarness(a_registry(), settings.model_copy(update={"anthropic_api_key": broken}))
    result = harness.run_turn(None, "Double four.")
    assert result.stop_reason == "model_error"
    assert "ANTHROPIC_API_KEY holds characters" in str(result.error)
    assert "SECRET" not in f"{result.error}{caplog.text}"
    assert "trying again" not in caplog.text
    assert not stub.asked
    harness.close()


def test_turns_of_a_session_share_their_history(stub: MessagesStub, harness: AgentHarness) -> None:
    """The second turn's request begins with all of the first's, byte for byte; another session's does not."""
    stub.answer(Reply(content=[tool_use(1, "double", number=4)]), said("Eight."), said("Sixteen."), said("Who?"))
    harness.run_turn("s", "Double four.")
    second = harness.run_turn("s", "And again.", skill_context="Only even numbers.")
    harness.run_turn("other", "And again.")
    first, again = messages_of(stub, 1), messages_of(stub, 2)
    assert again[: len(first)] == first
    assert again[len(first)] == {"role": "assistant", "content": [{"type": "text", "text": "Eight."}]}
    metadata, skill, words = (block["text"] for block in again[-1]["content"])
    assert metadata.startswith(
        "<runtime_metadata>\nsession_id: s\nprovider: anthropic\nmodel: claude-sonnet-5-5\ndate: "
    )
    assert (skill, words) == ("<skill_context>\nOnly even numbers.\n</skill_context>", "And again.")
    assert [message["role"] for message in second.messages] == ["user", "assistant"]
    assert len(messages_of(stub, 3)) == 1
    for part in ("system", "tools"):
        assert stub.asked[1].body[part] == stub.asked[2].body[part]


def test_agent_without_tools_takes_over_a_session_with_calls(stub: MessagesStub, settings: Settings) -> None:
    """It reads what the first one's calls brought, and can make none."""
    registry = a_registry()
    registry.agent("talker", model="claude-sonnet-5-5", system="Talk.")
    stub.answer(Reply(content=[tool_use(1, "double", number=2)]), said("Four."), said("It was four."))
    harness = AgentHarness(registry, settings)
    harness.run_turn("talk", "Twice two?", agent="clerk")
    assert harness.run_turn("talk", "What was it?", agent="talker").output_text == "It was four."
    harness.close()
    (result,) = messages_of(stub, 2)[2]["content"]
    assert (result["type"], result["content"]) == ("tool_result", "4")


def test_interrupted_turn_does_not_hold_up_its_session(
    stub: MessagesStub, harness: AgentHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a notebook cancels the turn; the session's next turn runs, and its model is told of the cancel."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(InlineDispatcher, "drive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            harness.run_turn("s", "Double four.")
    stub.answer(said("Ten."))
    assert harness.run_turn("s", "Double five.").output_text == "Ten."
    assert "was cancelled" in messages_of(stub, 0)[1]["content"][0]["text"]


def test_artifact_is_read_back_by_its_session_alone(stub: MessagesStub, harness: AgentHarness) -> None:
    """Once a long output is an artifact, the session is offered a tool that reads it, after the agent's own tools."""
    stub.answer(Reply(content=[tool_use(1, "count", until=5_000)]), said("Done."))
    first = harness.run_turn("s", "Count.")
    artifact_id = first.calls[0].content.partition(": ")[0]
    asks = Reply(content=[tool_use(2, "read_artifact", id=artifact_id, offset=7_000, limit=13)])
    stub.answer(asks, said("Read."), asks, said("No."))
    second = harness.run_turn("s", "Read it.")
    assert second.calls[0].content == "[characters 7000 to 7013 of 34999]\n001000\n001001"
    offered = [[tool["name"] for tool in asked.body["tools"]] for asked in stub.asked]
    assert offered == [["double", "count"], *[["double", "count", "read_artifact"]] * 3]
    other = harness.run_turn("other", "Read it.")
    assert other.calls[0].content == "denied: validation: unknown tool read_artifact; available: double, count"


def test_hooks_judge_the_reading_of_artifacts_too(stub: MessagesStub, settings: Settings) -> None:
    """The tool that the harness itself offers passes the same gates as others."""
    harness = AgentHarness(a_registry(NoReading()), settings)
    reads = Reply(content=[tool_use(2, "read_artifact", id="art_1")])
    stub.answer(Reply(content=[tool_use(1, "count", until=5_000)]), reads, said("No."))
    turn = harness.run_turn("s", "Count.")
    assert turn.calls[1].content == "denied: pre_hook: not here"
    harness.close()


def test_agent_that_thinks_reflects_with_the_same_prefix(stub: MessagesStub, settings: Settings) -> None:
    """A reflection's request has the step's prefix, so the cache serves both; thinking is sent back whole."""
    harness = AgentHarness(a_registry(think="medium"), settings)
    wrong = Reply(content=[THINKING, tool_use(1, "double", number="four")])
    stub.answer(wrong, Reply(content=[THINKING, *said("A number it must be.").content]), said("Eight."))
    turn = harness.run_turn("s", "Double four.")
    assert (turn.output_text, turn.usage.reflections, turn.usage.steps) == ("Eight.", 1, 2)
    first, aside, second = (asked.body for asked in stub.asked)
    assert (first["thinking"], first["output_config"]) == ({"type": "adaptive"}, {"effort": "medium"})
    for part in ("system", "tools", "model", "thinking", "output_config"):
        assert first[part] == aside[part] == second[part]
    assert (aside["max_tokens"], second["max_tokens"]) == (25_808, first["max_tokens"])
    assert (
        aside["messages"][:2]
        == second["messages"][:2]
        == [*first["messages"], {"role": "assistant", "content": wrong.content}]
    )
    result, wish = aside["messages"][2]["content"]
    assert result["is_error"]
    assert "Before you go on" in wish["text"]
    note = {"type": "text", "text": "<reflection>\nA number it must be.\n</reflection>"}
    assert second["messages"][2:] == [{"role": "user", "content": [result, note]}]
    harness.close()


def test_history_that_was_summed_up_goes_out_without_the_thoughts_of_its_newest_step(
    stub: MessagesStub, settings: Settings
) -> None:
    """Old thinking is valid only after the text it followed, which a summary replaced; later thinking is sent back."""
    harness = AgentHarness(a_registry(think="low", compact_at_tokens=1_000), settings)
    uses = [tool_use(number, "double", number=number) for number in range(3)]
    long = {"input_tokens": 400, "cache_read_input_tokens": 600}
    steps = [Reply(content=[THINKING, use], usage=long if number == 1 else {}) for number, use in enumerate(uses)]
    stub.answer(*steps[:2], said("They double."), steps[2], said("Done."))
    turn = harness.run_turn("s", "Double them.")
    assert (turn.status, turn.output_text, len(turn.messages)) == ("completed", "Done.", 8)
    *_, summing, third, last = (asked.body["messages"] for asked in stub.asked)
    assert "Sum up" in summing[-1]["content"][-1]["text"]
    assert third[0]["content"][0]["text"] == "<summary>\nThey double.\n</summary>"
    assert third[1:] == [
        {"role": "assistant", "content": [uses[1]]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0001", "content": "2"}]},
    ]
    assert last[:3] == third
    assert last[3] == {"role": "assistant", "content": [THINKING, uses[2]]}
    harness.close()


def test_session_that_grew_past_the_models_window_goes_on(stub: MessagesStub, settings: Settings) -> None:
    """A step refused as too long is sent again under a summary, whatever length was measured before."""
    harness = AgentHarness(a_registry(compact_at_tokens="auto"), settings)
    too_long = Refusal(
        status=400, kind="invalid_request_error", message="prompt is too long: 206768 tokens > 200000 maximum"
    )
    uses = [Reply(content=[tool_use(number, "double", number=number)]) for number in range(2)]
    stub.answer(*uses, too_long, said("They double."), said("Done."), said("Again."))
    turn = harness.run_turn("s", "Double them.")
    assert (turn.status, turn.output_text) == ("completed", "Done.")
    *_, summing, third = (asked.body["messages"] for asked in stub.asked)
    assert "Sum up" in summing[-1]["content"][-1]["text"]
    assert third[0]["content"][0]["text"] == "<summary>\nThey double.\n</summary>"
    assert harness.run_turn("s", "And?").output_text == "Again."
    harness.close()
