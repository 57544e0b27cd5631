"""Reflection: when it is requested, what it costs, who reads it, and that it always has a result (A17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.asides import NO_BUDGET, NO_TIME
from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.gates import MODEL_FLOOR_S
from harness_worker.core.registration.thinking import REFLECTION_TOKENS
from harness_worker.errors import ModelError, ScriptExhausted, Stopped, ToolError, TransientError
from harness_worker.ports import ModelReply, ModelRequest
from harness_worker.wire import StopReason, TurnStatus
from tests.unit.builders import TIMING
from tests.unit.engine_kit import TIMEOUT_S, TURN_ID, Engine, Told, answers, asks, kinds, raising

NOTE = "<reflection>\ntry the other\n</reflection>"
WELL = answers("try the other")


def an_engine(**options: Any) -> Engine:  # noqa: ANN401 - any of an agent's
    """A turn of an agent that thinks a little, whose reads fail."""
    engine = Engine()
    engine.agent_is(**{"think": "low", **options})
    engine.bodies["look"] = fails
    return engine


def fails() -> None:
    """A tool's body that fails."""
    raise ToolError("nothing there")


def worked(*replies: Told, asides: tuple[Told, ...] = (WELL,), **options: Any) -> Engine:  # noqa: ANN401
    """The turn, worked until its end."""
    engine = an_engine(**options)
    engine.says(*replies, asides=asides)
    engine.work()
    return engine


def budgeted(engine: Engine, **limits: Any) -> None:  # noqa: ANN401 - any limit
    """Give the turn another budget."""
    turn = engine.turn
    engine.store.turns[TURN_ID] = replace(turn, budget=replace(turn.budget, **limits))


def told(engine: Engine) -> list[dict[str, Any]]:
    """The data of the events that report reflections."""
    return [dict(event.data) for event in engine.store.events if event.type == "reflection.completed"]


def last_blocks(request: ModelRequest) -> list[dict[str, Any]]:
    """The blocks of a request's last message."""
    return list(request.messages[-1].content)


def test_reflection_follows_a_failure_and_is_read_by_every_later_call() -> None:
    """It is requested once, after the results, and stays there unchanged in every later request."""
    engine = worked(asks("look"), asks("write"), answers("done"), asides=(answers(" try the other\n"),))
    assert kinds(engine) == ["step", "reflection", "step", "step"]
    _, reflecting, second, third = engine.model.requests
    assert (reflecting.max_tokens, reflecting.think, second.max_tokens) == (REFLECTION_TOKENS["low"], "low", None)
    assert (reflecting.step, reflecting.tools, reflecting.system) == (1, second.tools, second.system)
    assert [block["type"] for block in last_blocks(reflecting)] == ["tool_result", "text"]
    assert [block.get("text") for block in last_blocks(second)] == [None, NOTE]
    assert third.messages[: len(second.messages)] == second.messages
    assert [block["type"] for block in last_blocks(third)] == ["tool_result"]


def test_one_failure_among_results_leads_to_a_reflection() -> None:
    """It does not matter what else the step asked for, and in which order."""
    for tools in (("look", "write"), ("write", "look")):
        engine = worked(asks(*tools), answers("done"))
        assert kinds(engine) == ["step", "reflection", "step"]


def test_later_reflection_leaves_the_earlier_one_where_it_is() -> None:
    """So does a stub: the prompt only grows."""
    for other, notes in ((answers("or none"), ["<reflection>\nor none\n</reflection>"]), (ModelError("refused"), [])):
        engine = worked(asks("look"), asks("look"), answers("done"), asides=(WELL, other))
        second, *_, last = engine.model.requests[2:]
        assert last.messages[: len(second.messages)] == second.messages
        assert [block["text"] for block in last_blocks(last) if block["type"] == "text"] == notes


def test_reflection_stands_in_the_order_of_events() -> None:
    """Its event comes after the start of the step that reads it; the journal's messages do not have it."""
    engine = worked(asks("look"), answers("done"))
    types = engine.event_types
    at = types.index("reflection.completed")
    assert (types[at - 1], types[at + 1]) == ("step.started", "model.completed")
    history = engine.store.history(TURN_ID)
    assert [message.role for message in history] == ["user", "assistant", "user", "assistant"]
    assert [block["type"] for block in history[2].content] == ["tool_result"]


def test_reflection_is_charged_and_told() -> None:
    """Its tokens and dollars are charged, and it counts as one reflection but as no step."""
    costly = replace(WELL, usage=Usage(input_tokens=3, dollars=0.5))
    engine = worked(asks("look"), answers("done"), asides=(costly,))
    used = engine.turn.used
    assert (used.reflections, used.dollars, used.input_tokens, used.steps) == (1, 0.5, 3, 2)
    (event,) = told(engine)
    assert (event["step"], event["text"], event["is_stub"], event["model"]) == (1, "try the other", False, "told")
    usage = dict.fromkeys(("output_tokens", "cache_read_tokens", "cache_write_tokens"), 0)
    assert event["usage"] == {"input_tokens": 3, "dollars": 0.5, **usage}


@pytest.mark.parametrize(
    ("options", "reflects_before"),
    [
        ({}, []),
        ({"reflect_every": 1}, [1, 2, 3]),
        ({"reflect_every": 2}, [2]),
        ({"think": "off", "reflect_every": 1}, []),
    ],
)
def test_reflection_is_periodic_where_nothing_fails(options: dict[str, Any], reflects_before: list[int]) -> None:
    """It is requested after every so many steps with calls, and never if thinking is off."""
    engine = worked(asks("write"), asks("write", "write"), asks("write"), answers("."), asides=(WELL,) * 3, **options)
    assert [event["step"] for event in told(engine)] == reflects_before
    assert engine.turn.status is TurnStatus.COMPLETED


def test_reflection_comes_after_results_only() -> None:
    """There is none before the first step or after a pause of the provider; a denied call counts as a failure."""
    paused = replace(answers("I look"), stop_reason="pause_turn")
    engine = worked(paused, asks("nonsense"), answers("done"), reflect_every=1)
    assert kinds(engine) == ["step", "step", "reflection", "step"]


def test_thinking_that_is_off_asks_for_nothing() -> None:
    """Failures lead to no reflection if thinking is off."""
    engine = worked(asks("look"), answers("done"), think="off")
    assert (kinds(engine), told(engine)) == (["step", "step"], [])
    assert engine.model.requests[0].think == "off"


# --- stubs


def test_reflection_without_budget_is_a_stub() -> None:
    """The model is not asked, nothing is charged, and no later request has a note of it."""
    engine = an_engine()
    budgeted(engine, max_reflections=1)
    engine.says(asks("look"), asks("look", "look"), answers("done"), asides=[WELL])
    engine.work()
    assert [(event["text"], event["is_stub"]) for event in told(engine)] == [
        ("try the other", False),
        (NO_BUDGET, True),
    ]
    assert kinds(engine) == ["step", "reflection", "step", "step"]
    assert {block["type"] for block in last_blocks(engine.model.requests[-1])} == {"tool_result"}
    assert engine.turn.used.reflections == 1


def short_of_time(left_s: float) -> Engine:
    """A turn that has so many seconds left when its read has failed, worked until its end."""
    engine = an_engine()
    engine.says(asks("look"), answers("done"), asides=[WELL])
    engine.advance()
    engine.run()
    engine.clock.now_s += TIMEOUT_S - left_s
    engine.work()
    assert engine.turn.status is TurnStatus.COMPLETED
    return engine


def test_reflection_without_time_is_a_stub() -> None:
    """The time that is left belongs to the step; with time for both, it is requested."""
    engine = short_of_time(2 * MODEL_FLOOR_S - 1)
    assert [event["text"] for event in told(engine)] == [NO_TIME]
    assert (kinds(engine), engine.turn.used.reflections) == (["step", "step"], 0)
    engine = short_of_time(2 * MODEL_FLOOR_S + 1)
    assert (kinds(engine), engine.turn.used.reflections) == (["step", "reflection", "step"], 1)


def test_reflection_leaves_its_step_the_time_it_needs() -> None:
    """A model that keeps failing is given up in time; the reflection counts as used, because it was requested."""
    engine = an_engine()

    def slow() -> ModelReply:
        engine.clock.now_s += min(15.0, engine.model.requests[-1].timeout_s)
        raise TransientError("overloaded")

    engine.says(asks("look"), answers("done"), asides=[slow] * 4)
    engine.work()
    assert [event["text"] for event in told(engine)] == [NO_TIME]
    assert (engine.turn.status, engine.turn.used.reflections) == (TurnStatus.COMPLETED, 1)


@pytest.mark.parametrize(
    ("aside", "said"),
    [
        (ModelError("refused"), "[model error: refused]"),
        (ModelError("nul \x00, half \ud83d"), "[model error: nul \ufffd, half \ufffd]"),
        (ScriptExhausted("no line"), "[model error: no line]"),
        (replace(answers("no"), stop_reason="refusal"), "[model error: it said nothing of use (refusal)]"),
        (replace(answers(" "), stop_reason="\x00"), "[model error: it said nothing of use (\ufffd)]"),
        (answers(" "), "[model error: it said nothing of use (end_turn)]"),
        (asks("write"), "[model error: it said nothing of use (tool_use)]"),
    ],
)
def test_reflection_that_fails_is_a_stub_and_the_loop_goes_on(aside: Told, said: str) -> None:
    """The stub says why, and the turn is answered all the same."""
    engine = worked(asks("look"), answers("done"), asides=(aside,))
    assert [(event["text"], event["is_stub"]) for event in told(engine)] == [(said, True)]
    assert (engine.turn.output_text, engine.turn.used.reflections) == ("done", 1)


def test_reflection_that_was_cut_short_is_one() -> None:
    """Its length is limited on purpose, so it is used although it was cut."""
    engine = worked(asks("look"), answers("done"), asides=(replace(WELL, stop_reason="max_tokens"),))
    assert last_blocks(engine.model.requests[-1])[-1]["text"] == NOTE


# --- ends, deaths


def test_reflection_that_uses_the_budget_up_ends_the_turn() -> None:
    """A reflection counts against the budget like any other model call."""
    costly = replace(WELL, usage=Usage(dollars=2.0))
    engine = worked(asks("look"), asides=(costly,))
    assert (engine.turn.status, engine.turn.stop_reason) == (TurnStatus.INCOMPLETE, StopReason.BUDGET)
    assert engine.event_types[-3:] == ["reflection.completed", "step.completed", "turn.incomplete"]


def test_cancel_while_reflecting_ends_the_turn() -> None:
    """What the model had said of its reflection by then is not stored."""
    engine = worked(asks("look", text="I look."), asides=(Stopped("half a thought"),))
    assert (engine.turn.status, engine.turn.output_text, told(engine)) == (TurnStatus.CANCELLED, "I look.", [])


def test_cancel_after_reflecting_is_seen_with_its_commit() -> None:
    """The reflection is charged, and the turn ends."""
    engine = an_engine()

    def cancelled() -> ModelReply:
        engine.store.cancel(TURN_ID)
        return WELL

    engine.says(asks("look"), asides=[cancelled])
    engine.work()
    assert (engine.turn.status, engine.turn.used.reflections) == (TurnStatus.CANCELLED, 1)


def test_death_between_reflection_and_commit_costs_one_more_call() -> None:
    """The first reflection is neither stored nor charged, and the step reads the second one."""
    engine = an_engine()
    engine.says(asks("look"), answers("done"), asides=[answers("lost"), WELL])
    engine.advance()
    engine.run()
    silent = raising(TransientError("no answer"))
    engine.seen_store.before["transact"] += [lambda: None, lambda: None, silent, silent]
    engine.advance()
    assert kinds(engine) == ["step", "reflection"]
    assert (told(engine), engine.turn.used.reflections) == ([], 0)
    engine.clock.now_s += TIMING.lease_ttl_s + 0.1
    engine.work()
    assert [event["text"] for event in told(engine)] == ["try the other"]
    assert (engine.turn.used.reflections, kinds(engine)) == (1, ["step", "reflection", "reflection", "step"])
    assert engine.turn.used.output_tokens == 3


def test_each_reflection_has_a_visit_of_its_own() -> None:
    """A visit has time for one model call, so the next visit is requested at once."""
    engine = an_engine()
    engine.says(asks("look"), answers("done"), asides=[WELL])
    engine.advance()
    engine.run()
    before = engine.sent.advances
    engine.advance()
    assert (engine.turn.owner, engine.sent.advances, kinds(engine)) == (None, before + 1, ["step", "reflection"])


def test_zombie_does_not_reflect_for_another() -> None:
    """A visit that has lost the turn meanwhile changes nothing."""
    engine = an_engine()

    def overtaken() -> ModelReply:
        engine.clock.now_s += TIMING.lease_ttl_s + 0.1
        engine.model.asides.insert(0, WELL)
        engine.advance()
        return answers("late")

    engine.says(asks("look"), answers("done"), asides=[overtaken])
    engine.work()
    assert [event["text"] for event in told(engine)] == ["try the other"]
    assert engine.turn.used.reflections == 1


def test_later_turns_read_what_was_thought() -> None:
    """The session's prompt only grows, so that what was sent once is sent again."""
    engine = worked(asks("look"), answers("done"))
    sent = engine.model.requests[-1].messages
    engine.store.insert_turn(replace(engine.turn, id="turn-2", preparation=None, step=0, used=Usage(), fence=0,
                                     status=TurnStatus.QUEUED, budget=BudgetLimits()))  # fmt: skip
    engine.says(answers("again"))
    engine.coordinator.advance("turn-2")
    assert engine.model.requests[-1].messages[: len(sent)] == sent
