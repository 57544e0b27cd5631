"""Whole turns on Claude's adapter, in one process, against a stub of the Messages API."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from harness_worker import AgentHarness, Effect, Registry, Settings
from harness_worker.testing.messages_replies import Ending, Refusal, Reply, said, tool_use
from harness_worker.testing.messages_stub import MessagesStub, messages_stub

THINKING = {"type": "thinking", "thinking": "Hm, let me see.", "signature": "EqQBCkgIARABGAI="}


@pytest.fixture
def stub() -> Generator[MessagesStub]:
    """A provider that says what the test scripts."""
    with messages_stub() as running:
        yield running


def a_registry() -> Registry:
    """One agent on Claude, with one tool."""
    registry = Registry()

    @registry.tool(effect=Effect.READ_ONLY)
    def double(number: int) -> int:  # pyright: ignore[reportUnusedFunction]
        """Twice a number."""
        return 2 * number

    registry.agent("clerk", model="claude-sonnet-5-5", system="Count.", tools=["double"])
    return registry


@pytest.fixture
def harness(stub: MessagesStub, tmp_path: Path) -> Generator[AgentHarness]:
    """The engine with a fake key."""
    settings = Settings.model_validate(
        {"home": tmp_path, "anthropic_api_key": "sk-ant-fake", "anthropic_base_url": stub.url}
    )
    harness = AgentHarness(a_registry(), settings)
    yield harness
    harness.close()


def messages_of(stub: MessagesStub, number: int) -> list[dict[str, Any]]:
    """What a request told the model."""
    return list(stub.asked[number].body["messages"])


def test_turn_sends_back_what_was_said_and_one_result_a_call(stub: MessagesStub, harness: AgentHarness) -> None:
    """The second request is the first with the model's message as it was, thinking included, and the results."""
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
    """``pause_turn`` is no answer: its message is sent back as it is, and the model goes on."""
    stub.answer(said("Let me search.", stop_reason="pause_turn"), said("Found it."))
    result = harness.run_turn(None, "Search.")
    assert (result.status, result.output_text, result.usage.steps) == ("completed", "Found it.", 2)
    assert messages_of(stub, 1)[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Let me search."}]}


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_turn_cut_short_is_incomplete_and_runs_nothing(stub: MessagesStub, harness: AgentHarness, reason: str) -> None:
    """What was said stands; calls of a message that was cut short are not run."""
    stub.answer(Reply(content=[{"type": "text", "text": "So f"}, tool_use(1, "double", number=4)], stop_reason=reason))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.stop_reason, result.output_text) == ("incomplete", reason, "So f")
    assert [call.content.partition(" ")[2][:7] for call in result.calls] == ["not_run"]


def test_turn_survives_faults_that_pass(stub: MessagesStub, harness: AgentHarness) -> None:
    """Overload, an error in the stream and a cut socket are tried again unseen: one step, one message."""
    busy = Refusal(status=529, kind="overloaded_error", message="Overloaded", headers={"retry-after": "0"})
    stub.answer(busy, said("Ei", ending=Ending.ERROR, after=3), said("Eig", ending=Ending.CUT, after=3), said("Eight."))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.output_text, result.usage.steps) == ("completed", "Eight.", 1)
    assert len(stub.asked) == 4


def test_turn_that_is_refused_says_why(stub: MessagesStub, harness: AgentHarness) -> None:
    """A refusal for good ends the turn with the provider's words."""
    stub.answer(Refusal(status=401, kind="authentication_error", message="invalid bearer token"))
    result = harness.run_turn(None, "Double four.")
    assert (result.status, result.stop_reason) == ("failed", "model_error")
    assert result.error == {
        "code": "model_error",
        "message": "the model's provider answered 401 authentication_error: invalid bearer token",
    }


def test_turn_without_key_says_which_variable_to_set(tmp_path: Path) -> None:
    """Nobody has to read a log to learn that a key is missing."""
    harness = AgentHarness(a_registry(), Settings(home=tmp_path))
    result = harness.run_turn(None, "Double four.")
    assert result.stop_reason == "model_error"
    assert "set ANTHROPIC_API_KEY" in str(result.error)
    harness.close()
