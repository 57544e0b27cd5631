"""What a model is asked: order, context, the session's earlier turns, hashes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.core.ending import FALLBACK_TEXTS, NO_ANSWER_TEXT
from harness_worker.core.prompting.past import CLOSINGS, DECLINED, DECLINED_WORDS, PastTurn
from harness_worker.core.prompting.prompt import Gathered, Prompt, prepare
from harness_worker.core.prompting.sent import WORDLESS
from harness_worker.core.records import Message, TurnPreparation
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.sources.context_pack import ContextPack, Passage
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import READER, a_turn

DAY_S = 86_400.0
FACTS = "session_id: session\nprovider: scripted\nmodel: scripted:f\ndate: 1970-01-02"
METADATA = f"<runtime_metadata>\n{FACTS}\n</runtime_metadata>"
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
REDACTED = {"type": "redacted_thinking", "data": "EmwK"}
PREPARED = TurnPreparation(context=("then",), prefix_hash="p")


def look(arguments: dict[str, Any]) -> str:
    """A tool's body; nobody runs it here."""
    return str(arguments)


def an_agent(system: str = "be brief") -> AgentSpec:
    """An agent with one tool."""
    registry = Registry()
    registry.add_tool(look, name="look", schema={"type": "object"}, description="Looks.")
    registry.agent("agent", model="scripted:f", system=system, tools=["look"])
    return registry.agents["agent"]


def says(role: str, content: Any) -> Message:  # noqa: ANN401 - any content
    """A message."""
    return Message(role=role, content=content, position=0)


def texts(*said: str) -> list[dict[str, str]]:
    """Text blocks."""
    return [{"type": "text", "text": text} for text in said]


def a_past(*messages: Message, status: TurnStatus = TurnStatus.COMPLETED, **changes: Any) -> PastTurn:  # noqa: ANN401
    """An earlier turn that was prepared with "then"."""
    turn = PastTurn(status=status, output_text="told", preparation=PREPARED, messages=messages)
    return replace(turn, **changes)


def a_prompt(*past: PastTurn, agent: AgentSpec | None = None, **changes: Any) -> Prompt:  # noqa: ANN401 - any field
    """What a turn that began on the second day is sent with."""
    turn = a_turn(**{"started_at": DAY_S, **changes})
    return prepare(turn, agent or an_agent(), past=past, own=(says("user", turn.input),), artifact_reader=READER)


def sent(*past: PastTurn, **changes: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any field
    """Its messages."""
    return [(message.role, message.content) for message in a_prompt(*past, **changes).messages]


def test_prompt_has_its_parts_in_order() -> None:
    """Tools, system text, history; then runtime metadata, skill and the user's words as one message."""
    history = a_past(says("user", "first"), says("assistant", texts("one")))
    prompt = a_prompt(history, skill_context="Fold paper.")
    assert (prompt.system, [tool.name for tool in prompt.tools]) == ("be brief", ["look"])
    assert sent(history, skill_context="Fold paper.") == [
        ("user", texts("then", "first")),
        ("assistant", texts("one")),
        ("user", texts(METADATA, "<skill_context>\nFold paper.\n</skill_context>", "hello")),
    ]


def test_prompt_has_what_was_gathered_between_metadata_and_skill() -> None:
    """A6: metadata, memory, what is not to be trusted, skill, the user's words; what may be cited is kept beside."""
    document = Passage(id="a.md#1", title="A", source="a.md", text="So.")
    gathered = Gathered(facts=("my name is Ann",), pack=ContextPack(documents=(document,)), left_out=("x",))
    turn = a_turn(started_at=DAY_S, skill_context="Fold paper.")
    prompt = prepare(
        turn, an_agent(), past=(), own=(says("user", turn.input),), artifact_reader=READER, gathered=gathered
    )
    (message,) = prompt.messages
    starts = [block["text"].partition("\n")[0] for block in message.content]
    assert starts == ["<runtime_metadata>", "<memory>", "<untrusted_context>", "<skill_context>", "hello"]
    assert [source.id for source in prompt.carried.sources] == ["a.md#1"]
    kept = replace(turn, preparation=prompt.preparation, step=1)
    again = prepare(kept, an_agent(), past=(), own=(says("user", turn.input),), artifact_reader=READER)
    assert (again.messages, again.carried, again.preparation) == (prompt.messages, prompt.carried, prompt.preparation)


def test_prompt_leaves_out_what_is_empty() -> None:
    """There is no block without text."""
    assert sent() == [("user", texts(METADATA, "hello"))]
    assert sent(input=" ", skill_context="") == [("user", texts(METADATA))]


def test_prompt_dates_a_turn_that_was_never_claimed_by_its_creation() -> None:
    """A turn without a start has its day of creation."""
    assert "date: 1970-01-01" in sent(started_at=None)[0][1][0]["text"]


def test_prompt_names_the_provider_of_a_bare_model() -> None:
    """A model without a prefix is Claude's."""
    text = sent(agent=replace(an_agent(), model="claude-sonnet-5-5"))[0][1][0]["text"]
    assert "provider: anthropic\nmodel: claude-sonnet-5-5" in text


def test_prompt_replays_its_preparation_verbatim() -> None:
    """What was sent with a turn once is sent again, whatever has changed since; a turn under way stays as it is."""
    assert sent(preparation=PREPARED, skill_context="new") == [("user", texts("then", "hello"))]
    assert sent(step=1, skill_context="new") == [("user", "hello")]
    with pytest.raises(FrozenInstanceError):
        setattr(PREPARED, "context", ())  # noqa: B010 - what must not be possible


def test_prompt_of_a_session_starts_with_what_was_sent_before() -> None:
    """Each turn's messages are a prefix of the next one's: the provider's cache holds."""
    first = a_prompt(input="one")
    past = a_past(says("user", "one"), says("assistant", texts("1")), preparation=first.preparation)
    second = a_prompt(past, input="two", started_at=9 * DAY_S)
    assert second.messages[0].content == first.messages[0].content
    assert second.preparation.prefix_hash == first.preparation.prefix_hash
    assert not second.is_cache_break


@pytest.mark.parametrize(
    ("status", "told", "closing"),
    [
        (TurnStatus.CANCELLED, "half", CLOSINGS[TurnStatus.CANCELLED]),
        (TurnStatus.FAILED, "half", CLOSINGS[TurnStatus.FAILED]),
        (TurnStatus.INCOMPLETE, FALLBACK_TEXTS[StopReason.MAX_STEPS], FALLBACK_TEXTS[StopReason.MAX_STEPS]),
        (TurnStatus.INCOMPLETE, "\n\n", NO_ANSWER_TEXT),  # which no provider accepts
    ],
)
def test_prompt_closes_a_turn_that_was_cut(status: TurnStatus, told: str, closing: str) -> None:
    """Every call has its result, and the last word is the assistant's: what the user was told, or why there is none."""
    use: dict[str, Any] = {"type": "tool_use", "id": "u", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "u", "content": "denied: not_run: the turn was cancelled"}
    cut = a_past(
        says("user", "first"), says("assistant", [use]), says("user", [result]), status=status, output_text=told
    )
    roles = [(role, content[-1]) for role, content in sent(cut)]
    assert roles[1:4] == [("assistant", use), ("user", result), ("assistant", *texts(closing))]


def test_prompt_says_for_a_turn_without_an_answer_what_its_user_was_told() -> None:
    """A message without content is no message to a provider."""
    empty = a_past(says("user", "first"), says("assistant", []), output_text=NO_ANSWER_TEXT)
    assert sent(empty)[1] == ("assistant", texts(NO_ANSWER_TEXT))
    silent = a_past(says("user", "first"), output_text="", status=TurnStatus.INCOMPLETE)
    assert sent(silent)[1] == ("assistant", texts(NO_ANSWER_TEXT))


@pytest.mark.parametrize("thought", [THOUGHT, REDACTED], ids=["thinking", "redacted_thinking"])
def test_prompt_has_no_message_of_the_model_that_ends_in_a_thought(thought: dict[str, Any]) -> None:
    """The provider refuses it in every later request; thoughts with words behind them go back as they were."""
    known = a_prompt().preparation
    only = a_past(says("user", "first"), says("assistant", [THOUGHT, thought]), preparation=known)
    assert sent(only)[1] == ("assistant", texts("told"))
    behind = a_past(says("user", "first"), says("assistant", [THOUGHT, *texts("so"), thought]), preparation=known)
    assert sent(behind)[1] == ("assistant", [THOUGHT, *texts("so")])


def test_pause_in_a_thought_is_sent_the_same_in_its_turn_and_after_it() -> None:
    """What stands before later thoughts and in the provider's cache may not change."""
    known = a_prompt().preparation
    own = [says("user", "first"), says("assistant", [THOUGHT])]
    during = prepare(
        a_turn(started_at=DAY_S, step=1, preparation=known), an_agent(), past=(), own=own, artifact_reader=READER
    ).messages
    assert during[1].content == texts(WORDLESS)
    after = a_prompt(a_past(*own, says("assistant", texts("so")), preparation=known)).messages
    assert after[:2] == during


def test_prompt_leaves_out_what_no_model_ever_answered() -> None:
    """A request that failed at its first call would fail every later one of the session too."""
    assert len(sent(a_past(says("user", "x" * 9), status=TurnStatus.FAILED))) == 1
    cancelled = a_past(says("user", " "), status=TurnStatus.CANCELLED, preparation=None)
    assert sent(cancelled)[:2] == [("user", WORDLESS), ("assistant", texts(CLOSINGS[TurnStatus.CANCELLED]))]
    assert len(sent(a_past())) == 2


USE: dict[str, Any] = {"type": "tool_use", "id": "u", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "u", "content": "done"}
HALF: dict[str, Any] = {"type": "tool_use", "id": "h", "name": "look", "input": {}}
NOT_RUN = {"type": "tool_result", "tool_use_id": "h", "content": "denied: not_run", "is_error": True}


def declined(*said: Message, **changes: Any) -> PastTurn:  # noqa: ANN401 - any field
    """An earlier turn whose model declined in the end."""
    status, reason = TurnStatus.INCOMPLETE, StopReason.REFUSAL
    return a_past(says("user", "bad"), *said, status=status, stop_reason=reason, **changes)


@pytest.mark.parametrize(
    "said",
    [
        [says("assistant", [])],
        [says("assistant", texts("I c"))],
        [says("assistant", [*texts("I c"), HALF]), says("user", [NOT_RUN])],
        [says("assistant", texts("Let me see.")), says("assistant", [])],
    ],
    ids=["nothing", "half a text", "half a call", "after a pause"],
)
def test_prompt_leaves_out_what_a_model_declined(said: list[Message]) -> None:
    """While it is sent, all that follows is declined too. What was sent before it is sent as it was."""
    before = a_past(says("user", "first"), says("assistant", texts("one")), preparation=a_prompt().preparation)
    refused = declined(*said, preparation=before.preparation)
    assert sent(before, refused) == sent(before)
    assert not a_prompt(before, refused).is_cache_break
    assert not a_prompt(refused).has_past


def test_prompt_keeps_what_the_tools_of_a_declined_turn_did() -> None:
    """For it is done: calls and results, without the words that were declined, nor what was thought of them."""
    asks, pauses = says("assistant", [THOUGHT, *texts("So."), USE]), says("assistant", texts("Let me see."))
    cut = [says("assistant", [*texts("I c"), HALF]), says("user", [NOT_RUN])]
    known = replace(a_prompt().preparation, context=("bad, then",), notes={"1": "hm"})
    refused = declined(asks, says("user", [RESULT]), pauses, *cut, preparation=known)
    assert sent(refused)[:-1] == [
        ("user", texts(DECLINED_WORDS)),
        ("assistant", [*texts("So."), USE]),
        ("user", [RESULT]),
        ("assistant", texts(DECLINED)),
    ]


SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
FOUND: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
OPEN: dict[str, Any] = {**SEARCH, "id": "s2"}


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ([[*texts("So."), OPEN]], [texts("So.")]),
        ([[OPEN]], [texts("told")]),
        ([[THOUGHT, OPEN]], [texts("told")]),
        ([[OPEN], texts("So.")], [texts(WORDLESS), texts("So.")]),
        ([[SEARCH], [FOUND, *texts("So.")]], [[SEARCH], [FOUND, *texts("So.")]]),
        ([[SEARCH, FOUND, OPEN]], [[SEARCH, FOUND]]),
    ],
    ids=["behind text", "alone", "behind a thought", "before a pause", "found after a pause", "one of two"],
)
def test_search_of_the_provider_that_found_nothing_in_its_turn_is_not_sent_later(
    said: list[Any], read: list[Any]
) -> None:
    """The provider refuses its own call without a result wherever more follows it, so the session would end there."""
    past = a_past(says("user", "find"), *(says("assistant", each) for each in said))
    assert sent(past)[1:-1] == [("assistant", each) for each in read]


def test_call_of_a_server_that_the_provider_asks_is_not_sent_later_without_its_result() -> None:
    """As if it were a search: it is another kind of the provider's own calls."""
    asks: dict[str, Any] = {"type": "mcp_tool_use", "id": "m1", "name": "look", "server_name": "s", "input": {}}
    found: dict[str, Any] = {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": []}
    past = a_past(says("user", "find"), says("assistant", [asks, found, {**asks, "id": "m2"}]))
    assert sent(past)[1:-1] == [("assistant", [asks, found])]


def test_search_of_the_provider_is_sent_back_while_its_turn_pauses() -> None:
    """The provider then continues with the call's result."""
    paused = says("assistant", [OPEN])
    assert (
        prepare(a_turn(), an_agent(), past=(), own=(says("user", "find"), paused), artifact_reader=READER).messages[-1]
        == paused
    )


def test_search_whose_result_was_declined_is_not_sent_later() -> None:
    """The result is part of the reply that is left out."""
    refused = declined(
        says("assistant", [OPEN, USE]), says("user", [RESULT]), says("assistant", [{**FOUND, "tool_use_id": "s2"}])
    )
    assert sent(refused)[1:3] == [("assistant", [USE]), ("user", [RESULT])]


def test_summary_stands_though_it_was_made_in_a_turn_that_was_declined() -> None:
    """What it replaces may be too long to send; the newest step's results stay behind it."""
    before = a_past(says("user", "first"), says("assistant", texts("one")))
    known = replace(PREPARED, summary="all")
    ((role, content),) = sent(before, declined(says("assistant", []), preparation=known))
    assert (role, content[0], content[-1]) == ("user", *texts("<summary>\nall\n</summary>", "hello"))
    ran = [says("assistant", [USE]), says("user", [RESULT])]
    twice = declined(*ran, *ran, says("assistant", []), preparation=replace(known, compacted_at=2))
    assert sent(before, twice)[:-1] == [
        ("user", texts("<summary>\nall\n</summary>", DECLINED_WORDS)),
        ("assistant", [USE]),
        ("user", [RESULT]),
        ("assistant", texts(DECLINED)),
    ]


def test_prompt_hashes_tell_prompts_apart() -> None:
    """The same prompt has the same hashes; other words change the render hash, another system text both."""
    one, same, other = a_prompt(), a_prompt(), a_prompt(input="other")
    overridden = a_prompt(system_prompt_override="be long")
    assert overridden.system == "be long"
    assert a_prompt(system_prompt_override="").system == ""
    assert (one.render_hash, one.preparation) == (same.render_hash, same.preparation)
    assert one.render_hash != other.render_hash
    assert one.preparation.prefix_hash == other.preparation.prefix_hash
    assert overridden.preparation.prefix_hash != one.preparation.prefix_hash
    assert overridden.render_hash != one.render_hash


def test_prompt_tells_a_cache_break_within_its_session() -> None:
    """Another prefix than the session's last, or the turn's own last, is a break; a first one is none."""
    known = a_prompt().preparation
    before = a_past(says("user", "x"), says("assistant", texts("y")), preparation=known)
    unanswered = a_past(says("user", "x"), preparation=None, status=TurnStatus.CANCELLED)
    assert not a_prompt(system_prompt_override="other").is_cache_break
    assert not a_prompt(before, unanswered).is_cache_break
    assert a_prompt(before, unanswered, system_prompt_override="other").is_cache_break
    assert a_prompt(step=1, preparation=known, agent=an_agent("changed")).is_cache_break
    assert a_prompt(before, agent=replace(an_agent(), model="scripted:g")).is_cache_break


Result: TypeAlias = Literal["short", "long", "summary"]
RESULTS = st.lists(st.sampled_from(["short", "long", "summary"]), max_size=4)


class Provider:
    """Thinks before each word, and takes a thought back only behind what it was thought behind, as Claude does."""

    def __init__(self) -> None:
        self._thought_behind: list[str] = []

    def answer(self, prompt: Prompt) -> Message:
        """A thought and a word."""
        for at, message in enumerate(prompt.messages):
            blocks: list[dict[str, Any]] = message.content if message.role == "assistant" else []
            for block in blocks:
                if block["type"] == "thinking":
                    assert self._behind(prompt, prompt.messages[:at]) == self._thought_behind[int(block["signature"])]
        self._thought_behind.append(self._behind(prompt, prompt.messages))
        thought = {"type": "thinking", "thinking": "", "signature": str(len(self._thought_behind) - 1)}
        return says("assistant", [thought, *texts("so")])

    def _behind(self, prompt: Prompt, messages: Sequence[Message]) -> str:
        tools = [tool.name for tool in prompt.tools]
        return json.dumps([prompt.model, prompt.system, tools, [[each.role, each.content] for each in messages]])


MODELS = st.sampled_from(["scripted:f", "scripted:g"])


SYSTEMS = st.sampled_from([None, "be rude"])
REASONS = st.sampled_from([StopReason.END_TURN, StopReason.REFUSAL])


@given(turns=st.lists(st.tuples(MODELS, SYSTEMS, RESULTS, REASONS), min_size=1, max_size=4))
def test_thoughts_are_sent_back_only_behind_what_they_were_thought_behind(
    turns: list[tuple[str, str | None, list[Result], StopReason]],
) -> None:
    """Whatever changes before them: model, system text, tools (an artifact's reader), a summary, what was declined."""
    registry = Registry()
    registry.add_tool(look, name="read_artifact", schema={"type": "object"}, description="Reads.")
    provider, past = Provider(), list[PastTurn]()
    for model, system, results, reason in turns:
        agent = replace(an_agent(), model=model)
        turn = a_turn(started_at=DAY_S, system_prompt_override=system)
        own = [says("user", turn.input)]
        for result in (*results, None):
            prompt = prepare(turn, agent, past=past, own=own, artifact_reader=registry.tools["read_artifact"])
            own.append(provider.answer(prompt))
            turn = replace(turn, step=turn.step + 1, preparation=prompt.preparation)
            if result is not None:
                content = "art_1a: long" if result == "long" else "short"
                own.append(says("user", [{"type": "tool_result", "tool_use_id": "a", "content": content}]))
            if result == "summary":
                turn = replace(turn, preparation=replace(prompt.preparation, summary="all", compacted_at=turn.step))
        past.append(a_past(*own, preparation=turn.preparation, output_text="", stop_reason=reason))
