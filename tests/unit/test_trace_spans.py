"""A turn that is over as spans: what there is of it, when, and nothing that anybody said unless that is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_worker.core.budget import Usage
from harness_worker.core.outcomes import (
    DenialReason,
    ToolArtifactReference,
    ToolDenied,
    ToolExecutionResult,
    ToolFailure,
    ToolOutcome,
    ToolTimeout,
)
from harness_worker.core.records import Call, Event, Message
from harness_worker.core.registration.effects import Effect
from harness_worker.core.tracing.content import MOST_CHARS
from harness_worker.core.tracing.journal import Journal
from harness_worker.core.tracing.spans import OTHER, trace_of
from harness_worker.core.tracing.trace import Caller, Span, Trace, call_span_id, trace_id_of, turn_span_id
from harness_worker.errors import ModelError, ScriptExhausted, Stopped, ToolError
from harness_worker.ports import ModelReply
from harness_worker.wire import Approval, StopReason, TurnStatus
from tests.unit.builders import NOW, a_call, a_turn, ended, failed, ok
from tests.unit.engine_kit import TURN_ID, Engine, answers, asks, raising

WORDS = "their words"
USED = Usage(input_tokens=10, output_tokens=4, cache_read_tokens=100, cache_write_tokens=7, dollars=0.25)
READS = {"look": Effect.READ_ONLY, "find": Effect.READ_ONLY}


def story_of(engine: Engine, *, has_content: bool = False) -> Journal:
    """The journal of the engine's turn."""
    return Journal(
        turn=engine.turn,
        calls=engine.calls,
        events=engine.store.events_of(TURN_ID),
        agent=engine.coordinator.agents["agent"],
        messages=engine.store.history(TURN_ID) if has_content else None,
    )


def an_event(seq: int, kind: str, at: float, **data: Any) -> Event:  # noqa: ANN401 - any of an event's
    """One event of the turn."""
    return Event(turn_id="turn", seq=seq, type=kind, at=at, data=data)


def an_ended(*calls: Call, events: tuple[Event, ...] = (), **changes: Any) -> Journal:  # noqa: ANN401 - any field's value
    """The journal of a turn that ran for ten seconds."""
    ends = {"status": TurnStatus.COMPLETED, "stop_reason": StopReason.END_TURN, "finished_at": NOW + 10}
    return Journal(turn=a_turn(**{"started_at": NOW + 1, **ends, **changes}), calls=calls, events=events)


def names(trace: Trace) -> list[str]:
    """The names of its spans."""
    return [span.name for span in trace]


def named(trace: Trace, name: str) -> Span:
    """The one span of that name."""
    (found,) = [span for span in trace if span.name == name]
    return found


def passing(engine: Engine, reply: ModelReply, seconds: float) -> Any:  # noqa: ANN401 - what a model does
    """What a model does that takes its time for the reply."""

    def say() -> ModelReply:
        engine.clock.wait(seconds)
        return reply

    return say


def test_turn_is_a_tree_of_what_it_did() -> None:
    """Below the turn stand its model calls and its tool calls, each from its beginning to its end."""
    engine = Engine(**READS)
    engine.bodies = {name: lambda: engine.clock.wait(2.0) for name in READS}
    reply = replace(asks("look", "find"), usage=USED)
    engine.says(passing(engine, reply, 3.0), passing(engine, replace(answers("so"), usage=USED), 1.0))
    engine.work()
    trace = trace_of(story_of(engine))
    assert names(trace) == ["invoke_agent agent", "chat told", "chat told", "execute_tool look", "execute_tool find"]
    turn, first, second, look, find = trace
    assert {span.parent_id for span in trace[1:]} == {turn.span_id}
    assert (turn.parent_id, {span.trace_id for span in trace}) == (None, {trace_id_of(TURN_ID)})
    assert len({span.span_id for span in trace}) == len(trace)
    seconds = [((span.start_ns - turn.start_ns) / 1e9, (span.end_ns - turn.start_ns) / 1e9) for span in trace]
    assert seconds == [(0, 8), (0, 3), (7, 8), (3, 5), (5, 7)]
    assert [span.error for span in trace] == [None] * 5
    assert [span.kind for span in trace] == ["internal", "client", "client", "internal", "internal"]
    assert (look.attributes["gen_ai.tool.name"], find.attributes["harness.call_id"]) == ("look", "0.1")
    assert (first.attributes["harness.step"], second.attributes["harness.step"]) == (0, 1)
    assert {span.attributes["gen_ai.conversation.id"] for span in trace} == {"session"}
    assert {span.attributes["harness.turn_id"] for span in trace} == {TURN_ID}


def test_model_call_tells_its_tokens_by_the_conventions() -> None:
    """Tokens of the cache are input too. The turn's own sum has other names, or the tokens would be counted twice."""
    engine = Engine()
    engine.says(replace(answers("so"), usage=USED))
    engine.work()
    turn, chat = trace_of(story_of(engine))
    told = {name.removeprefix("gen_ai.usage."): value for name, value in chat.attributes.items() if "usage" in name}
    assert told == {
        "input_tokens": 117,
        "output_tokens": 4,
        "cache_read.input_tokens": 100,
        "cache_creation.input_tokens": 7,
    }
    assert chat.attributes["harness.dollars"] == 0.25
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert (chat.attributes["gen_ai.provider.name"], chat.attributes["gen_ai.request.model"]) == ("anthropic", "told")
    assert (turn.attributes["harness.input_tokens"], turn.attributes["harness.output_tokens"]) == (117, 4)
    assert not [name for name in turn.attributes if name.startswith("gen_ai.usage")]


@pytest.mark.parametrize(
    ("broken", "status", "error", "of_chat"),
    [
        (ModelError("no"), "failed", "model_error", "model_error"),
        (ScriptExhausted("no"), "failed", "script_exhausted", "script_exhausted"),
        (Stopped("half"), "cancelled", None, "cancelled"),
        (ValueError("a bug"), "failed", "internal", "internal"),
    ],
)
def test_model_call_without_an_answer_is_told(broken: Exception, status: str, error: str | None, of_chat: str) -> None:
    """Its span goes from when the call was due to the turn's end, as an error unless the turn was cancelled."""
    engine = Engine()
    engine.says(broken)
    engine.work()
    turn, chat = trace_of(story_of(engine))
    assert (turn.attributes["harness.status"], turn.error, chat.error) == (status, error, of_chat)
    assert (chat.name, chat.attributes["harness.step"], chat.end_ns) == ("chat told", 0, turn.end_ns)


def test_turn_that_ends_before_the_model_is_asked_has_no_model_call() -> None:
    """Such a turn was cancelled in the queue, or its budget was used up."""
    engine = Engine()
    engine.store.cancel(TURN_ID)
    engine.work()
    assert names(trace_of(story_of(engine))) == ["invoke_agent agent"]
    step = an_event(2, "step.started", NOW, step=1)
    out = an_ended(events=(step,), status=TurnStatus.INCOMPLETE, stop_reason=StopReason.BUDGET)
    (turn,) = trace_of(out)
    assert (turn.error, turn.attributes["harness.stop_reason"]) == (None, "budget")


ID: dict[str, Any] = {"call_id": "0.0", "tool_name": "tool0"}


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (ToolExecutionResult(**ID, output="x", elapsed_ms=1.0), None),
        (ToolArtifactReference(**ID, artifact_id="a", summary="s", url="u", size_bytes=1, elapsed_ms=1.0), None),
        (ToolTimeout(**ID, deadline_s=1.0), "timeout"),
        (ToolDenied(**ID, reason=DenialReason.APPROVAL, details="no"), "approval"),
        (ToolFailure(**ID, error="whatever"), "tool_error"),
        (ToolFailure(**ID, error="outcome_unknown: …", in_doubt=True), "outcome_unknown"),
        (ToolFailure(**ID, error="worker_lost: …", in_doubt=True), "worker_lost"),
        (ToolFailure(**ID, error="lock_missed: …"), "lock_missed"),
        (None, None),
    ],
)
def test_call_tells_how_it_ended(outcome: ToolOutcome | None, error: str | None) -> None:
    """The span names the outcome in the harness's word, never in the tool's words."""
    call = replace(ended(a_call(), attempt=2, deadline_at=NOW), outcome=outcome)
    (_, span) = trace_of(an_ended(call))
    assert (span.name, span.error) == ("execute_tool tool0", error)
    told = span.attributes.get("harness.outcome")
    assert told == (None if outcome is None else type(outcome).__name__)
    assert (span.attributes["harness.attempt"], span.span_id) == (2, call_span_id("turn", "0.0", 2))


def test_call_that_never_started_has_no_length() -> None:
    """Its span stands at the moment at which the call was denied."""
    call = ended(a_call(), failed(a_call()), started_at=None, finished_at=NOW + 4)
    (_, span) = trace_of(an_ended(call))
    assert (span.start_ns, span.end_ns) == (round((NOW + 4) * 1e9),) * 2


def test_tool_that_a_model_made_up_has_no_name() -> None:
    """The name is a text of the model's, and may be anything."""
    engine = Engine()
    engine.says(asks(WORDS), answers("so"))
    engine.work()
    assert names(trace_of(story_of(engine)))[-1] == f"execute_tool {OTHER}"
    assert WORDS not in repr(trace_of(story_of(engine)))
    assert names(trace_of(story_of(engine, has_content=True)))[-1] == f"execute_tool {WORDS}"


@pytest.mark.parametrize(
    ("tool_use_id", "is_told"),
    [("toolu_01-aB", True), ("x" * 64, True), ("x" * 65, False), (WORDS, False), ("id\n", False), ("", False)],
)
def test_models_own_id_of_a_call_is_told_if_it_is_one(tool_use_id: str, is_told: bool) -> None:
    """A model could write anything in its place, so any other text is told only where texts are told."""
    journal = an_ended(ended(a_call(tool_use_id=tool_use_id), deadline_at=NOW))
    (_, span), (_, with_texts) = trace_of(journal), trace_of(replace(journal, messages=()))
    assert span.attributes.get("gen_ai.tool.call.id") == (tool_use_id if is_told else None)
    assert with_texts.attributes["gen_ai.tool.call.id"] == tool_use_id


def test_what_was_asked_beside_the_steps_is_a_model_call() -> None:
    """Its span begins when the step was due; the step's own call begins after it."""
    usage = {"input_tokens": 3, "output_tokens": 2}
    events = (
        an_event(2, "step.started", NOW + 2, step=1),
        an_event(3, "reflection.completed", NOW + 4, step=1, text=WORDS, is_stub=False, usage=usage),
        an_event(4, "compaction.completed", NOW + 5, step=1, text=WORDS, is_stub=True, usage=usage, cache_break=True),
        an_event(5, "model.completed", NOW + 9, step=1, text=WORDS, stop_reason="end_turn", usage=usage),
    )
    turn, *chats = trace_of(an_ended(events=events))
    assert [span.attributes["harness.request"] for span in chats] == ["reflection", "compaction", "step"]
    seconds = [((span.start_ns - turn.start_ns) / 1e9, (span.end_ns - turn.start_ns) / 1e9) for span in chats]
    assert seconds == [(2, 4), (4, 5), (5, 9)]
    assert [span.error for span in chats] == [None, "no_answer", None]
    assert [span.attributes.get("harness.cache_break") for span in chats] == [None, True, None]
    assert {span.name for span in chats} == {"chat"}, "the agent is not served here, nor is its model known"
    assert len({span.span_id for span in chats}) == 3


def test_what_happened_to_the_turn_is_told_in_its_span() -> None:
    """Events tell when it began, was taken over or waited for a person, without anybody's words."""
    events = (
        an_event(2, "turn.started", NOW + 1, agent="agent"),
        an_event(3, "turn.redelivered", NOW + 2, step=0),
        an_event(4, "approval.requested", NOW + 3, call_id="0.0", tool="t", arguments={"a": WORDS}, expires_at=1.0),
        an_event(5, "approval.resolved", NOW + 4, call_id="0.0", decision="deny", reason=WORDS),
        an_event(6, "budget.warning", NOW + 5, name="max_steps", used=5, limit=6),
    )
    (turn,) = trace_of(an_ended(events=events))
    assert [(each.name, dict(each.attributes)) for each in turn.events] == [
        ("turn.started", {}),
        ("turn.redelivered", {"harness.step": 0}),
        ("approval.requested", {"harness.call_id": "0.0"}),
        ("approval.resolved", {"harness.call_id": "0.0", "harness.decision": "deny"}),
        ("budget.warning", {"harness.name": "max_steps", "harness.used": 5, "harness.limit": 6}),
    ]
    assert turn.events[0].at_ns == round((NOW + 1) * 1e9)
    assert turn.attributes["harness.queued_s"] == 1.0


def test_ids_follow_from_the_turns_own() -> None:
    """Other systems keep these numbers, so they are the same whoever computes them, and never change."""
    assert trace_id_of("turn") == 0xBBF74556FC4793861DDF29024DC480A5
    assert turn_span_id("turn") == 0x68D54EACAD6DD7C6
    assert call_span_id("turn", "0.1", 1) == 0xB7EBDDCE71D0D102
    assert len({call_span_id("turn", call, attempt) for call in ("0.0", "0.1", "1.0") for attempt in (1, 2)}) == 6
    assert trace_id_of("turn") != trace_id_of("other")


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("03", True)])
def test_turn_of_a_caller_is_a_part_of_its_trace(flags: str, is_sampled: bool) -> None:
    """The turn's span is in the caller's trace, below the caller's span.

    Only the turn's own parts are below the turn.
    """
    journal = an_ended(ended(a_call()), traceparent=f"00-{'0' * 31}a-{'0' * 15}b-{flags}")
    turn, call = trace_of(journal)
    assert turn.caller == Caller(trace_id=10, span_id=11, is_sampled=is_sampled)
    assert (turn.trace_id, turn.parent_id, turn.span_id) == (10, 11, turn_span_id("turn"))
    assert (call.trace_id, call.parent_id, call.caller) == (10, turn.span_id, None)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "00-" + "0" * 32 + "-" + "b" * 16 + "-01",
        "00-" + "a" * 32 + "-" + "0" * 16 + "-01",
        "00-" + "A" * 32 + "-" + "b" * 16 + "-01",
        "ff-" + "a" * 32 + "-" + "b" * 16 + "-01",
        "00-" + "a" * 32 + "-" + "b" * 16 + "-01-more",
        "00-" + "a" * 32 + "-" + "b" * 16 + "-01\n",
    ],
)
def test_what_names_no_span_is_no_caller(given: str) -> None:
    """Without a valid caller the turn has a trace of its own."""
    (turn,) = trace_of(an_ended(traceparent=given))
    assert (turn.trace_id, turn.parent_id, turn.caller) == (trace_id_of("turn"), None, None)


TIMES = st.none() | st.floats(NOW - 5, NOW + 20)


@given(st.lists(st.tuples(TIMES, TIMES), max_size=5), st.lists(st.floats(NOW - 5, NOW + 20), max_size=6))
def test_every_span_lies_within_the_turn(calls: list[tuple[float | None, float | None]], steps: list[float]) -> None:
    """Whatever the clocks say, no span begins before the turn, ends after it, or ends before it begins."""
    kinds = ("step.started", "model.completed", "reflection.completed")
    events = tuple(an_event(i, kinds[i % 3], at, step=i, stop_reason="x") for i, at in enumerate(steps))
    ran = [ended(a_call(i), started_at=start, finished_at=end) for i, (start, end) in enumerate(calls)]
    turn, *parts = trace_of(an_ended(*ran, events=events))
    for span in parts:
        assert turn.start_ns <= span.start_ns <= span.end_ns <= turn.end_ns


def a_telling(secret: str) -> Journal:
    """The journal of a turn in each of whose texts stands the same secret."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    call = ended(a_call(arguments={"a": secret, secret: 1}), ok(a_call(), secret), deadline_at=NOW)
    wrong = ended(
        a_call(1, tool=secret, tool_use_id=secret), failed(a_call(1), f"worker_lost: {secret}"), deadline_at=None
    )
    asked = ended(a_call(2, approval=Approval(decision="deny", reason=secret, arguments={"a": secret})))
    events = (
        an_event(1, "turn.queued", NOW, agent="agent", session_id="session"),
        an_event(2, "step.started", NOW, step=0),
        an_event(3, "reflection.completed", NOW, step=0, text=secret, is_stub=False, usage=usage),
        an_event(4, "model.completed", NOW, step=0, text=secret, stop_reason="tool_use", usage=usage),
        an_event(5, "approval.requested", NOW, call_id="0.2", tool=secret, arguments={"a": secret}, expires_at=1.0),
        an_event(6, "approval.resolved", NOW, call_id="0.2", decision="deny", reason=secret, arguments={"a": secret}),
        an_event(7, "tool.completed", NOW, call_id="0.1", tool=secret, outcome="ToolFailure", is_error=True),
        an_event(8, "turn.failed", NOW, output_text=secret, error={"code": "model_error", "message": secret}),
    )
    texts = {
        "input": secret,
        "output_text": secret,
        "error": {"code": "model_error", "message": secret},
        "metadata": {secret: secret},
        "system_prompt_override": secret,
        "skill_context": secret,
    }
    return an_ended(call, wrong, asked, events=events, status=TurnStatus.FAILED, **texts)


def a_history(secret: str) -> tuple[Message, ...]:
    """A message of each kind, with the same secret in each of their texts."""
    said = [
        {"type": "thinking", "thinking": secret, "signature": "x"},
        {"type": "text", "text": secret},
        {"type": "tool_use", "id": "use-0", "name": secret, "input": {"a": secret}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": secret}},
    ]
    heard = [{"type": "tool_result", "tool_use_id": "use-0", "content": secret}]
    return (
        Message(role="user", content=secret),
        Message(role="assistant", content=said),
        Message(role="user", content=heard),
    )


@given(st.text(st.characters(categories=["L", "N"]), min_size=3, max_size=30).map(lambda text: f"<{text}>"))
def test_no_text_is_told_unless_it_is_asked_for(secret: str) -> None:
    """That holds for inputs, answers, arguments, results, errors, thoughts, reasons and metadata."""
    journal = a_telling(secret)
    assert secret not in repr(trace_of(journal))
    assert secret in str(trace_of(replace(journal, messages=a_history(secret)))[0].attributes["gen_ai.input.messages"])


def test_texts_are_told_where_they_are_asked_for() -> None:
    """The turn, each model call and each tool call tell them in the form of the conventions."""
    journal = replace(a_telling("hello"), messages=a_history("hello"))
    turn, aside, step, call, *_ = trace_of(journal)
    asked, answered = (json.loads(str(turn.attributes[f"gen_ai.{each}.messages"])) for each in ("input", "output"))
    text = {"type": "text", "content": "hello"}
    assert asked == [{"role": "user", "parts": [text]}]
    assert answered == [{"role": "assistant", "parts": [text], "finish_reason": "end_turn"}]
    assert json.loads(str(aside.attributes["gen_ai.output.messages"]))[0]["parts"] == [text]
    before, said = (json.loads(str(step.attributes[f"gen_ai.{each}.messages"])) for each in ("input", "output"))
    assert before == [{"role": "user", "parts": [text]}]
    assert said[0]["finish_reason"] == "tool_use"
    assert said[0]["parts"] == [
        {"type": "reasoning", "content": "hello"},
        text,
        {"type": "tool_call", "id": "use-0", "name": "hello", "arguments": {"a": "hello"}},
        {"type": "server_tool_use"},
    ]
    assert call.attributes["gen_ai.tool.call.arguments"] == '{"a":"hello","hello":1}'
    assert call.attributes["gen_ai.tool.call.result"] == "hello"


def test_call_without_a_result_tells_its_arguments() -> None:
    """There is nothing that the model read of it."""
    call = replace(ended(a_call(arguments={"a": 1}), deadline_at=NOW), outcome=None)
    (_, span) = trace_of(replace(an_ended(call), messages=()))
    assert span.attributes["gen_ai.tool.call.arguments"] == '{"a":1}'
    assert "gen_ai.tool.call.result" not in span.attributes


def test_model_call_without_an_answer_tells_what_it_was_asked() -> None:
    """What it was asked contains the results of the step before."""
    events = (an_event(9, "step.started", NOW, step=1),)
    journal = an_ended(events=events, step=1, status=TurnStatus.FAILED, stop_reason=StopReason.MODEL_ERROR)
    *_, chat = trace_of(replace(journal, messages=a_history("hello")))
    asked = json.loads(str(chat.attributes["gen_ai.input.messages"]))
    result = {"type": "tool_call_response", "id": "use-0", "response": "hello"}
    assert [message["role"] for message in asked] == ["user", "assistant", "user"]
    assert asked[-1]["parts"] == [result]
    assert "gen_ai.output.messages" not in chat.attributes


def test_long_texts_are_cut() -> None:
    """A text in JSON is still JSON after the cut."""
    journal = replace(a_telling("y" * 3 * MOST_CHARS), messages=a_history("y" * 3 * MOST_CHARS))
    turn, aside, step, call, *_ = trace_of(journal)
    (asked,) = json.loads(str(turn.attributes["gen_ai.input.messages"]))
    assert asked["parts"][0]["content"] == "y" * (MOST_CHARS - 1) + "…"
    assert max(len(str(value)) for span in (turn, aside, call) for value in span.attributes.values()) < MOST_CHARS + 200
    assert len(json.loads(str(step.attributes["gen_ai.output.messages"]))[0]["parts"]) == 4


def test_tool_that_raises_is_told_without_its_words() -> None:
    """The turn goes on, so its own span is no error."""
    engine = Engine()

    engine.bodies["look"] = raising(ToolError(WORDS))
    engine.says(asks("look"), answers("so"))
    engine.work()
    trace = trace_of(story_of(engine))
    assert (trace[0].error, named(trace, "execute_tool look").error) == (None, "tool_error")
    assert WORDS not in repr(trace)


def test_fork_tells_of_its_own_calls_and_of_whom_it_was_forked_from() -> None:
    """The calls of the steps that it was given ran in another turn, and are told there."""
    given_call, own = ended(a_call(0)), ended(a_call(1, step=1))
    trace = trace_of(an_ended(given_call, own, forked_from="origin", first_step=1))
    assert names(trace) == ["invoke_agent agent", "execute_tool _OTHER"]
    assert (trace[1].attributes["harness.call_id"], trace[0].attributes["harness.forked_from"]) == ("1.1", "origin")
