"""Compaction: when a history is summarised, what is sent from then on, and what always stays together (A18)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness_worker.core.asides import MOST_RESULT_CHARS, NO_TIME, aside_prompt, shortened
from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.gates import MODEL_FLOOR_S
from harness_worker.core.prompting.prompt import Prompt, RequestKind
from harness_worker.core.prompting.sent import blocks_of, since_summary
from harness_worker.core.records import Carried, Message, TurnPreparation
from harness_worker.core.registration.hooks import TurnStart
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.visits import MODEL_SLACK_S
from harness_worker.errors import ModelError, PromptTooLong, Stopped, TransientError
from harness_worker.ports import HeldTurn, ModelReply, ModelRequest
from harness_worker.turn.model_retries import MODEL_TRIES
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import NOW, TIMING, a_turn
from tests.unit.engine_kit import MODEL_TIMEOUT_S, TIMEOUT_S, TURN_ID, Engine, Told, answers, asks, kinds
from tests.unit.hook_kit import Recorder
from tests.unit.simulation.prompts import ids_in

SUMMARY = {"type": "text", "text": "<summary>\nwhat was\n</summary>"}
SHORT = answers("what was")
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
AGENT = AgentSpec(name="agent", model="told", system="", tools=())
SYSTEM = "be brief. " * 1_000
"""So long that a step or two add next to nothing."""
REFUSED = PromptTooLong("prompt is too long: 206768 tokens > 200000 maximum")


def sent_with(tokens: int, reply: ModelReply) -> ModelReply:
    """The reply to a prompt of so many tokens, most of which come from the provider's cache."""
    return replace(reply, usage=Usage(input_tokens=1, cache_read_tokens=tokens - 2, cache_write_tokens=1))


def an_engine(*replies: Told, asides: tuple[Told, ...] = (SHORT,), **options: Any) -> Engine:  # noqa: ANN401
    """A turn whose history is compacted at a hundred tokens."""
    engine = Engine()
    engine.agent_is(**{"compact_at_tokens": 100, "system": SYSTEM, **options})
    engine.says(*replies, asides=asides)
    return engine


def take_two_steps(engine: Engine) -> None:
    """Work the turn up to its third step, each of which calls one tool before it."""
    while engine.turn.step < 2:
        engine.advance()
        engine.run(f"{engine.turn.step - 1}.0")


def worked(*replies: Told, **options: Any) -> Engine:  # noqa: ANN401 - any of an engine's
    """The turn, worked until its end."""
    engine = an_engine(*replies, **options)
    engine.work()
    return engine


def next_turn(engine: Engine, *replies: Told, asides: tuple[Told, ...] = (), words: str = "next") -> None:
    """Another turn of the session, which needs one look for each reply."""
    turn_id = f"turn-{len(engine.store.turns) + 1}"
    fresh = replace(
        engine.turn, preparation=None, carried=None, step=0, used=Usage(), status=TurnStatus.QUEUED, fence=0
    )
    engine.store.insert_turn(replace(fresh, id=turn_id, input=words, budget=BudgetLimits()))
    engine.says(*replies, asides=asides)
    for _ in (*replies, *asides):
        engine.coordinator.advance(turn_id)


def told(engine: Engine, kind: str = "compaction.completed") -> list[dict[str, Any]]:
    """The data of the events of a kind."""
    return [dict(event.data) for event in engine.store.events if event.type == kind]


def roles(request: ModelRequest) -> list[str]:
    """The roles of the messages, in order."""
    return [message.role for message in request.messages]


LONG = (sent_with(10, asks("write", text="one")), sent_with(100, asks("look", text="two")))


def test_history_is_summed_up_once_a_prompt_was_too_long() -> None:
    """From then on the user's words under the summary and the newest step are sent; the rest is summarised."""
    engine = worked(*LONG, answers("done"))
    assert kinds(engine) == ["step", "step", "compaction", "step"]
    _, second, summing, third = engine.model.requests
    assert (summing.step, summing.tools, summing.system) == (2, second.tools, second.system)
    assert summing.messages[:-1] == second.messages[:-1]
    assert summing.messages[-1].content[:-1] == second.messages[-1].content
    assert [block["type"] for block in summing.messages[-1].content] == ["tool_result", "text"]
    words, *rest = third.messages
    assert words.content == [SUMMARY, *second.messages[0].content]
    assert [message.content for message in rest] == [message.content for message in engine.store.history(TURN_ID)[3:5]]
    assert engine.turn.output_text.endswith("done")


def test_history_is_summed_up_though_no_reflection_is_left() -> None:
    """A summary is no reflection; without it, the next prompt may be too long."""
    engine = an_engine(*LONG, answers("done"))
    turn = engine.turn
    engine.store.turns[TURN_ID] = replace(turn, budget=replace(turn.budget, max_reflections=0))
    engine.work()
    assert kinds(engine) == ["step", "step", "compaction", "step"]


def test_compaction_is_told_and_charged() -> None:
    """Its event has its step, the prompt's lengths before and after, the messages kept, its cost and its text."""
    engine = worked(*LONG, answers("done"), asides=(replace(SHORT, usage=Usage(output_tokens=7, dollars=0.25)),))
    (event,) = told(engine)
    assert (event["step"], event["text"], event["is_stub"], event["kept_messages"]) == (2, "what was", False, 3)
    assert 0 < event["tokens_after"] < event["tokens_before"]
    assert 100 < event["tokens_before"] < 105
    assert (event["usage"]["output_tokens"], event["usage"]["dollars"]) == (7, 0.25)
    assert (engine.turn.used.dollars, engine.turn.used.steps, engine.turn.used.reflections) == (0.25, 3, 0)
    breaks = [event.get("cache_break", False) for event in told(engine, "model.completed")]
    assert breaks == [False, False, True]


@pytest.mark.parametrize(("aside", "flagged"), [(SHORT, True), (ModelError("no"), False)])
def test_turn_that_was_compacted_says_so_at_its_end(aside: Told, *, flagged: bool) -> None:
    """Its last event says so, but only if a summary was made."""
    engine = worked(*LONG, answers("done"), asides=(aside,))
    assert engine.store.events[-1].data.get("context_was_compacted", False) is flagged


def test_journal_keeps_what_was_summed_up() -> None:
    """No message of the journal is rewritten."""
    engine = worked(*LONG, answers("done"))
    history = engine.store.history(TURN_ID)
    assert [message.role for message in history] == ["user", *["assistant", "user"] * 2, "assistant"]
    assert (history[0].content, history[1].content) == ("hello", list(LONG[0].content))


@pytest.mark.parametrize(
    ("replies", "compacts_before"),
    [
        ((sent_with(90, asks("write")), sent_with(90, asks("look"))), []),
        ((sent_with(90, asks("write")), sent_with(90, asks("look", text="two " * 500))), [2]),
        ((sent_with(999, asks("write")),), []),
        ((sent_with(999, asks("write")), sent_with(90, asks("look"))), []),
        (LONG, [2]),
        ((*LONG, sent_with(50, asks("write"))), [2]),
        ((*LONG, sent_with(100, asks("write"))), [2, 3]),
        ((*LONG, sent_with(90, asks("write")), sent_with(100, asks("look"))), [2, 4]),
    ],
)
def test_compaction_comes_when_it_must_and_can(replies: tuple[Told, ...], compacts_before: list[int]) -> None:
    """The last prompt and what was added reach the limit, and there is more than the newest step."""
    engine = worked(*replies, answers("done"), asides=(SHORT,) * 2)
    assert [event["step"] for event in told(engine)] == compacts_before


def test_history_is_left_alone_unless_the_agent_says_so() -> None:
    """Then the length of prompts is not stored, either."""
    engine = worked(*LONG, answers("done"), compact_at_tokens=None)
    assert kinds(engine) == ["step"] * 3
    assert engine.turn.preparation is not None
    assert engine.turn.preparation.prompt_tokens == 0


def test_later_summary_takes_the_place_of_an_earlier_one() -> None:
    """It is made from what would be sent, which includes the earlier summary."""
    engine = worked(
        *LONG, sent_with(100, asks("write", text="three")), answers("."), asides=(answers("first"), answers("second"))
    )
    again, last = engine.model.requests[-2:]
    assert again.messages[0].content[0]["text"] == "<summary>\nfirst\n</summary>"
    assert [block["text"] for block in last.messages[0].content if "<summary>" in block["text"]] == [
        "<summary>\nsecond\n</summary>"
    ]
    assert roles(last) == ["user", "assistant", "user"]
    assert last.messages[1].content[0]["text"] == "three"


def test_warning_comes_before_and_again_after() -> None:
    """There is one warning, at four fifths; once compacted, the history may grow and be warned of again."""
    near = (sent_with(80, asks("write")), sent_with(90, asks("look")), sent_with(100, asks("write")))
    engine = worked(*near, sent_with(85, asks("look")), answers("done"))
    warned = [each for each in told(engine, "budget.warning") if each["name"] == "context_tokens"]
    assert warned == [{"name": "context_tokens", "used": used, "limit": 100} for used in (80, 85)]
    first = engine.event_types.index("budget.warning")
    assert first < engine.event_types.index("compaction.completed")


def test_later_turns_start_from_the_summary() -> None:
    """What was summarised is not sent again, and each request begins with the one before it."""
    engine = worked(*LONG, answers("done"))
    before = engine.model.requests[-1].messages
    next_turn(engine, answers("well"))
    last = engine.model.requests[-1]
    assert last.messages[: len(before)] == before
    assert roles(last) == [*["user", "assistant"] * 3][: len(before) + 2]
    assert "cache_break" not in told(engine, "model.completed")[-1]


def test_summary_comes_with_what_it_does_not_replace() -> None:
    """Later prompts need nothing from before it; a summary that failed replaces nothing."""
    engine = worked(*LONG, answers("done"))
    next_turn(engine, answers("well"))
    assert engine.turn.carried == Carried(tools=("write", "look"))
    assert worked(*LONG, answers("done"), asides=(ModelError("no"),)).turn.carried is None


def test_session_is_summed_up_before_a_turns_first_call() -> None:
    """If the last turn's last prompt was too long, the new turn begins with a summary, then its user's words."""
    engine = worked(sent_with(100, answers("done")))
    next_turn(engine, sent_with(20, answers("well")), asides=(SHORT,))
    assert kinds(engine) == ["step", "compaction", "step"]
    _, summing, last = engine.model.requests
    assert roles(summing) == ["user", "assistant", "user"]
    assert ["Sum up" in block["text"] for block in summing.messages[-1].content] == [True]
    (words,) = last.messages
    assert (words.content[0], words.content[-1]) == (SUMMARY, {"type": "text", "text": "next"})
    assert told(engine)[0]["kept_messages"] == 1
    assert told(engine, "model.completed")[-1]["cache_break"]
    next_turn(engine, answers("again"))
    assert roles(engine.model.requests[-1]) == ["user", "assistant", "user"]


@pytest.mark.parametrize(("words", "asked"), [("next", ["step"]), ("next " * 300, ["compaction", "step"])])
def test_words_of_a_new_turn_count_too(words: str, asked: list[str]) -> None:
    """The provider has only counted what was sent before them."""
    engine = worked(sent_with(90, answers("done")))
    next_turn(engine, answers("well"), asides=(SHORT,), words=words)
    assert kinds(engine) == ["step", *asked]


def test_preparation_of_an_older_worker_counts_what_was_measured() -> None:
    """It has no number of characters, so the length of what was added is unknown."""
    older: dict[str, Any] = {"context": [], "prefix_hash": "x", "prompt_tokens": 100, "compact_at": 100}
    engine = worked(sent_with(20, answers("done")))
    preparation = TurnPreparation.from_record(older)
    assert (preparation.prompt_chars, preparation.tried_at) == (0, -1)
    engine.store.turns[TURN_ID] = replace(engine.turn, preparation=preparation)
    next_turn(engine, answers("well"), asides=(SHORT,))
    assert kinds(engine) == ["step", "compaction", "step"]
    assert told(engine)[0]["tokens_before"] == 100


def test_start_is_told_once_though_a_summary_comes_before_the_first_step() -> None:
    """The visit after the summary's also finds a turn without a step."""
    starts = Recorder()
    engine = worked(sent_with(100, answers("done")), hooks=(starts,))
    next_turn(engine, answers("well"), asides=(SHORT,))
    assert kinds(engine) == ["step", "compaction", "step"]
    assert [start.input for start in starts.of(TurnStart)] == ["hello", "next"]


# --- what goes wrong


@pytest.mark.parametrize(
    ("aside", "said"),
    [
        (ModelError("too long"), "[model error: too long]"),
        (answers(""), "[model error: it said nothing of use (end_turn)]"),
        (asks("write", text="Let me look."), "[model error: it said nothing of use (tool_use)]"),
        (replace(SHORT, stop_reason="max_tokens"), "[model error: it said nothing of use (max_tokens)]"),
    ],
)
def test_summary_that_fails_leaves_the_history_as_it_is(aside: Told, said: str) -> None:
    """Its event says so, and the next prompt that is too long leads to another summary."""
    engine = worked(*LONG, sent_with(120, asks("write")), answers("done"), asides=(aside, SHORT))
    assert [(event["step"], event["text"], event["is_stub"]) for event in told(engine)] == [
        (2, said, True), (3, "what was", False),
    ]  # fmt: skip
    assert kinds(engine) == ["step", "step", "compaction", "step", "compaction", "step"]
    before, _, after = engine.model.requests[1:4]
    assert after.messages[: len(before.messages)] == before.messages
    assert (told(engine)[0]["tokens_after"], told(engine)[0]["kept_messages"]) == (told(engine)[0]["tokens_before"], 5)


def test_summary_is_tried_again_in_the_next_turn_if_the_step_failed_too() -> None:
    """Nothing was counted since, so the length that was known before is still known."""
    engine = worked(*LONG, REFUSED, asides=(ModelError("no"),))
    assert (engine.turn.status, kinds(engine)) == (TurnStatus.FAILED, ["step", "step", "compaction", "step"])
    next_turn(engine, sent_with(120, answers("well")), asides=(ModelError("no"),))
    next_turn(engine, answers("well"), asides=(SHORT,))
    assert kinds(engine)[4:] == ["compaction", "step"] * 2
    assert [event["is_stub"] for event in told(engine)] == [True, True, False]
    assert [turn.status for turn in engine.store.turns.values()] == [TurnStatus.FAILED, *[TurnStatus.COMPLETED] * 2]


# --- what the provider refuses

BRIEF = (sent_with(10, asks("write")), sent_with(20, asks("look")))


def test_step_that_is_refused_as_too_long_is_asked_again_under_a_summary() -> None:
    """The provider's refusal counts, whatever the estimate of its length was."""
    engine = worked(*BRIEF, REFUSED, answers("done"))
    assert kinds(engine) == ["step", "step", "step", "compaction", "step"]
    assert (engine.turn.status, engine.turn.output_text, engine.turn.used.steps) == (TurnStatus.COMPLETED, "done", 3)
    assert engine.model.requests[-1].messages[0].content[0] == SUMMARY


@pytest.mark.parametrize("aside", [SHORT, ModelError("no")])
def test_step_that_is_refused_again_ends_the_turn(aside: Told) -> None:
    """One summary is requested for a step, whether it succeeds or not."""
    engine = worked(*BRIEF, REFUSED, REFUSED, asides=(aside,))
    assert kinds(engine) == ["step", "step", "step", "compaction", "step"]
    assert (engine.turn.stop_reason, engine.turn.error) == (
        StopReason.MODEL_ERROR, {"code": "model_error", "message": str(REFUSED)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("replies", "options"),
    [
        ((*BRIEF, ModelError("prompt is odd")), {}),
        ((*BRIEF, REFUSED), {"compact_at_tokens": None}),
        ((BRIEF[0], REFUSED), {}),
        ((REFUSED,), {}),
    ],
)
def test_step_that_no_summary_would_mend_ends_the_turn(replies: tuple[Told, ...], options: dict[str, Any]) -> None:
    """The step failed otherwise, the agent does not compact, or there is only the newest step."""
    engine = worked(*replies, **options)
    assert (engine.turn.stop_reason, kinds(engine)) == (StopReason.MODEL_ERROR, ["step"] * len(replies))


def test_session_goes_on_after_a_turn_whose_newest_step_alone_was_too_long() -> None:
    """The next turn summarises it, if need be from the beginnings of its results."""
    engine = worked(BRIEF[0], REFUSED, asides=())
    next_turn(engine, REFUSED, answers("well"), asides=(REFUSED, SHORT))
    assert kinds(engine)[2:] == ["step", "compaction", "compaction", "step"]
    assert [event["is_stub"] for event in told(engine)] == [False]
    assert engine.store.turns["turn-2"].output_text == "well"


def test_nothing_is_summed_up_where_a_summary_stands_already() -> None:
    """A turn that failed before any model answered leaves nothing but its summary."""
    engine = worked(sent_with(100, answers("done")))
    next_turn(engine, ModelError("refused"), asides=(SHORT,))
    next_turn(engine, REFUSED)
    assert kinds(engine) == ["step", "compaction", "step", "step"]


def test_summary_that_is_refused_as_too_long_is_made_of_less() -> None:
    """It is requested once more, and is charged, reported and stored as one."""
    thoughtful = replace(BRIEF[0], content=(THINKING, *BRIEF[0].content))
    engine = worked(thoughtful, LONG[1], answers("done"), asides=(REFUSED, SHORT))
    _, _, whole, less, _ = engine.model.requests
    assert kinds(engine) == ["step", "step", "compaction", "compaction", "step"]
    assert (whole.messages[1].content, less.messages[1].content) == (list(thoughtful.content), list(BRIEF[0].content))
    assert [message for number, message in enumerate(less.messages) if number != 1] == [
        whole.messages[0], whole.messages[2],
    ]  # fmt: skip
    assert [event["is_stub"] for event in told(engine)] == [False]


def test_summary_that_is_refused_twice_is_a_stub() -> None:
    """The step is requested all the same."""
    engine = worked(*LONG, answers("done"), asides=(REFUSED, REFUSED))
    assert kinds(engine) == ["step", "step", "compaction", "compaction", "step"]
    assert [event["text"] for event in told(engine)] == [f"[model error: {REFUSED}]"]


def test_visit_lasts_until_the_last_summary_that_it_asks_for() -> None:
    """No other visit takes the turn, although two late refusals and a slow summary come in one visit."""
    engine = an_engine(*BRIEF, asides=())
    take_two_steps(engine)
    engine.coordinator = replace(engine.coordinator, timing=replace(TIMING, visit_s=MODEL_TIMEOUT_S + MODEL_SLACK_S))
    engine.store.turns[TURN_ID] = replace(engine.turn, deadline_at=NOW + 3 * MODEL_TIMEOUT_S)

    def after(seconds: float, told: ModelReply | Exception) -> Callable[[], ModelReply]:
        def told_then() -> ModelReply:
            holder = HeldTurn(TURN_ID, engine.turn.owner or "", engine.turn.fence)
            for _ in range(int(seconds)):
                engine.clock.wait(1.0)
                engine.store.beat_turns([holder], TIMING.lease_ttl_s)
            engine.advance()  # another coordinator
            if isinstance(told, Exception):
                raise told
            return told

        return told_then

    engine.says(after(25, REFUSED), answers("done"), asides=(after(25, REFUSED), after(25, SHORT)))
    visits = engine.turn.fence
    engine.advance()
    assert engine.turn.fence == visits + 1
    assert [event["text"] for event in told(engine)] == ["what was"]


def test_summary_of_less_has_the_time_that_is_left() -> None:
    """What the refusal took is gone, and the step that follows keeps its part."""
    engine = an_engine(*BRIEF, asides=())
    take_two_steps(engine)

    def refused_late() -> ModelReply:
        engine.clock.wait(25.0)
        raise REFUSED

    engine.says(REFUSED, asides=(refused_late, SHORT))
    engine.advance()
    *_, refused, less = engine.model.requests
    assert kinds(engine) == ["step", "step", "step", "compaction", "compaction"]
    assert (refused.timeout_s, less.timeout_s) == (MODEL_TIMEOUT_S, TIMEOUT_S - MODEL_FLOOR_S - 25.0)


def test_visit_that_lost_its_turn_asks_for_no_summary() -> None:
    """The summary would be paid for and then dropped."""
    engine = an_engine(*BRIEF, asides=())
    take_two_steps(engine)

    def overtaken() -> ModelReply:
        engine.store.turns[TURN_ID] = replace(engine.turn, owner="another", fence=engine.turn.fence + 1)
        raise REFUSED

    engine.says(overtaken)
    engine.advance()
    assert (kinds(engine), engine.turn.owner) == (["step"] * 3, "another")


def test_reflection_that_is_refused_as_too_long_is_not_asked_again() -> None:
    """It is about the newest results, which a shorter prompt would lack."""
    engine = worked(*BRIEF, answers("done"), asides=(REFUSED,), think="low", reflect_every=2)
    assert kinds(engine) == ["step", "step", "reflection", "step"]


def test_less_is_the_beginnings_of_results() -> None:
    """Each cut result says how long it was; calls, words and short results stay whole."""
    results = [{"type": "tool_result", "tool_use_id": "a", "content": "x" * 5_000}]
    results += [{"type": "tool_result", "tool_use_id": "b", "content": "short"}, text("y" * 5_000)]
    uses = [{"type": "tool_use", "id": use_id, "name": "look", "input": {"text": "z" * 5_000}} for use_id in "ab"]
    messages = (Message(role="user", content="w" * 5_000), Message(role="assistant", content=[THINKING, *uses]))
    words, said, heard = shortened(a_prompt(*messages, Message(role="user", content=results))).messages
    assert (words, said.content, heard.content[1:]) == (messages[0], uses, results[1:])
    cut = heard.content[0]
    assert (cut["tool_use_id"], len(cut["content"])) == ("a", MOST_RESULT_CHARS)
    assert cut["content"].endswith("[cut: 5000 characters]")


def test_all_is_asked_about_if_the_newest_step_goes_on_from_a_pause() -> None:
    """A call in the paused message may have its result only in the next step."""
    paused = replace(sent_with(10, answers("hm")), stop_reason="pause_turn")
    engine = worked(paused, LONG[1], answers("done"))
    summing = engine.model.requests[2]
    assert roles(summing) == ["user", "assistant", "assistant", "user"]
    assert [block["type"] for block in summing.messages[-1].content] == ["tool_result", "text"]


def test_summary_whose_last_try_fails_after_its_time_says_that_its_time_was_over() -> None:
    """Whatever the model's error was."""
    silent = TransientError("no answer")
    engine = an_engine(*LONG, answers("done"), asides=())

    def slow() -> ModelReply:
        engine.clock.wait(TIMEOUT_S - MODEL_FLOOR_S - 7.0)  # the pauses between the tries last that long and more
        raise silent

    engine.says(asides=(*[silent] * (MODEL_TRIES - 1), slow))
    engine.work()
    assert [event["text"] for event in told(engine)] == [NO_TIME]


def test_summary_without_time_is_not_asked_for() -> None:
    """The time that is left belongs to the step."""
    engine = an_engine(*LONG, answers("done"))
    take_two_steps(engine)
    engine.clock.now_s += TIMEOUT_S - 15
    engine.work()
    assert [event["text"] for event in told(engine)] == [NO_TIME]
    assert (kinds(engine), engine.turn.status) == (["step"] * 3, TurnStatus.COMPLETED)


def test_cancel_while_summing_up_ends_the_turn() -> None:
    """Nothing of the summary is stored."""
    engine = worked(*LONG, asides=(Stopped("half"),))
    assert (engine.turn.status, engine.turn.output_text, told(engine)) == (TurnStatus.CANCELLED, "one\n\ntwo", [])


def test_summary_that_uses_the_budget_up_ends_the_turn() -> None:
    """The session's next turn can use it."""
    engine = worked(*LONG, asides=(replace(SHORT, usage=Usage(dollars=2.0)),))
    assert engine.turn.stop_reason is StopReason.BUDGET
    next_turn(engine, answers("well"))
    assert engine.model.requests[-1].messages[0].content[0] == SUMMARY


def test_summary_before_a_turns_first_call_never_forbids_it() -> None:
    """A first model call is always made, whatever the summary cost."""
    engine = worked(sent_with(100, answers("done")), asides=())
    costly = replace(SHORT, usage=Usage(dollars=2.0))
    next_turn(engine, answers("well"), asides=(costly,))
    ended = engine.store.turns["turn-2"]
    assert (ended.status, ended.output_text, ended.used.dollars) == (TurnStatus.COMPLETED, "well", 2.0)


def test_summary_of_a_turn_that_failed_then_is_not_lost() -> None:
    """The turn itself is left out of later prompts, because no model ever answered it."""
    engine = worked(sent_with(100, answers("done")))
    next_turn(engine, ModelError("refused"), asides=(SHORT,))
    next_turn(engine, answers("well"))
    (words,) = engine.model.requests[-1].messages
    assert words.content[0] == SUMMARY


def test_reflection_comes_first_and_its_note_stays_with_its_results() -> None:
    """The note about the newest results is kept beside them."""
    engine = an_engine(*LONG, answers("done"), asides=(answers("thought"), SHORT), think="low", reflect_every=2)
    engine.work()
    assert kinds(engine) == ["step", "step", "reflection", "compaction", "step"]
    assert engine.model.requests[-1].messages[-1].content[-1]["text"] == "<reflection>\nthought\n</reflection>"


def a_prompt(*messages: Message) -> Prompt:
    """A prompt of these messages alone."""
    known = TurnPreparation(context=(), prefix_hash="")
    return Prompt(
        system="", tools=(), messages=messages, preparation=known, render_hash="", is_cache_break=False, has_past=True
    )


# --- any history

Step = tuple[int, bool]
"""How many calls a step asks for, and whether its model thought before."""

STEPS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6)


def messages_of(turn: int, steps: list[Step]) -> tuple[Message, ...]:
    """A turn's messages, in which a step without calls is a pause of the provider."""
    said = [Message(role="user", content=f"words {turn}")]
    for number, (calls, thinks) in enumerate(steps):
        ids = [f"{turn}.{number}.{position}" for position in range(calls)]
        uses: list[dict[str, Any]] = [{"type": "tool_use", "id": use_id} for use_id in ids]
        said.append(
            Message(role="assistant", content=[*[THINKING] * thinks, *(uses or [text("pause")] * (not thinks))])
        )
        results: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": use_id} for use_id in ids]
        said += [Message(role="user", content=results)] if results else []
    return tuple(said)


def text(said: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": said}


@settings(max_examples=300)
@given(past=STEPS, own=STEPS, later=STEPS, cut=st.integers(0, 6))
def test_compaction_never_splits_a_call_from_its_result(
    past: list[Step], own: list[Step], later: list[Step], cut: int
) -> None:
    """Whatever is said before and after the summary, results follow their calls, and no message is empty.

    What is sent only grows at its end; it has all of the newest step, and everything that came later.
    """
    compacted_at = min(cut, len(own))
    known = TurnPreparation(context=(), prefix_hash="", summary="what was", compacted_at=compacted_at)
    whole = messages_of(1, [*own[:compacted_at], *later])
    made_of = len(messages_of(1, own[:compacted_at]))
    sent = since_summary([(None, messages_of(0, past)), (known, whole)])
    assert sent[0].content == [SUMMARY, text("words 1")]
    for before, after in zip(sent, (*sent[1:], Message(role="user", content=[])), strict=True):
        assert ids_in(after, "tool_result", "tool_use_id") == ids_in(before, "tool_use", "id")
        assert before.content
    newest = messages_of(1, own[:compacted_at])[len(messages_of(1, own[: max(0, compacted_at - 1)])) :]
    kept = sent[1 : 1 + len(newest)] if compacted_at else ()
    for message, was in zip(kept, newest if compacted_at else (), strict=True):
        assert message == was
    assert sent[1 + len(kept) :] == whole[made_of:]
    assert since_summary([(None, messages_of(0, past)), (known, whole[:made_of])]) == sent[: 1 + len(kept)]


@settings(max_examples=300)
@given(past=STEPS, own=STEPS)
def test_summary_is_asked_for_as_any_provider_takes_it(past: list[Step], own: list[Step]) -> None:
    """Results follow their calls, and the request for a summary is the user's last message.

    Everything before it was sent before; what is not summarised is sent verbatim after the summary.
    """
    closed = (*messages_of(0, past), Message(role="assistant", content=[text("closed")]))
    sent = (*closed, *messages_of(1, own))
    assume(sent[-1].role == "user")
    turn = a_turn(step=len(own))
    asked = aside_prompt(a_prompt(*sent), turn, RequestKind.COMPACTION, AGENT).messages
    for before, after in pairwise((*asked, Message(role="user", content=[]))):
        assert ids_in(after, "tool_result", "tool_use_id") == ids_in(before, "tool_use", "id")
    *whole, last = asked
    assert whole == list(sent[: len(whole)])
    assert (last.role, last.content[:-1]) == ("user", blocks_of(sent[len(whole)]) if own else [])
    known = TurnPreparation(context=(), prefix_hash="", summary="what was", compacted_at=len(own))
    kept = since_summary([(None, closed), (known, messages_of(1, own))])
    left_out = sent[len(asked) :]
    assert left_out == kept[len(kept) - len(left_out) :]
