"""Turns that do not simply finish: budgets, deadlines, and models that stop early, fail or say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.outsider import Json, Outsider, Posted, Step, call
from tests.e2e.times import contents, finished, started

LOOK = [call("look", n=1)]
LONG_S = 25.0
"""Longer than those turns have that are cut."""

BLOCK = {"type": "tool_use", "id": "t", "name": "look", "input": {"n": 1}}


def text(words: str, **more: object) -> Json:
    """A script line with a text."""
    return {"content": [{"type": "text", "text": words}], **more}


CASES: dict[str, tuple[tuple[Step, ...], Mapping[str, Any]]] = {
    # before all others, which would keep them waiting: their calls must begin within their time
    "read_too_long": (([call("look", n=1, s=LONG_S)], "never said"), {"timeout_s": 6}),
    "write_too_long": (([call("put", n=1, s=LONG_S), call("put", n=2)], "never said"), {"timeout_s": 6}),
    "max_steps": ((LOOK, LOOK, "never said"), {"max_steps": 2}),
    "no_steps": (("never said",), {"max_steps": 0}),
    "max_tool_calls": (([call("look", n=n) for n in range(4)], "done"), {"max_tool_calls": 2}),
    "calls_over_steps": (
        (LOOK, [call("nonsense"), call("look", n=2), call("put", n=3)], "done"),
        {"max_tool_calls": 2},
    ),
    "no_tool_calls": ((LOOK, "done"), {"max_tool_calls": 0}),
    "no_tokens": (({"content": [BLOCK], "usage": {"input_tokens": 1}}, "never said"), {"max_tokens": 0}),
    "free": (("done",), {"max_tokens": 0, "max_dollars": 0}),
    "no_progress": ((LOOK, LOOK, LOOK, "never said"), {}),
    "slow_progress": ((LOOK, LOOK, [call("look", n=2)], LOOK, LOOK, "done"), {}),
    "tokens": (({"content": [BLOCK], "usage": {"input_tokens": 90, "output_tokens": 20}}, "x"), {"max_tokens": 100}),
    "no_time": (("never said",), {"timeout_s": 0}),
    "model_too_slow": ((text("never said", latency_s=LONG_S),), {"timeout_s": 1}),
    "model_error": ((LOOK, {"error": "overloaded for good"}), {}),
    "exhausted": ((LOOK,), {}),
    "max_tokens": ((text("I was sayi", stop_reason="max_tokens"),), {}),
    "refusal": ((text("I will not.", stop_reason="refusal"),), {}),
    "cut_short": (({"content": [BLOCK], "stop_reason": "max_tokens"}, "never said"), {}),
    "empty": (({"content": []},), {}),
    "slow_model": ((text("done", latency_s=1.0),), {}),
    "usage": (
        (
            {"content": [BLOCK], "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 7}},
            text("done", usage={"input_tokens": 1, "cache_creation_input_tokens": 3}),
        ),
        {},
    ),
}


def _created(turn: Json) -> float:
    return started({"started_at": turn["created_at"]}).timestamp()


@pytest.fixture(scope="module")
def turns(outsider: Outsider) -> Posted:
    """Every case, all posted at once."""
    cases = {name: outsider.body(*steps, budget=dict(budget)) for name, (steps, budget) in CASES.items()}
    return Posted(outsider, cases)


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("max_steps", "incomplete", "max_steps"),
        ("no_steps", "incomplete", "max_steps"),
        ("max_tool_calls", "completed", "end_turn"),
        ("no_tool_calls", "completed", "end_turn"),
        ("tokens", "incomplete", "budget"),
        ("no_tokens", "incomplete", "budget"),
        ("free", "completed", "end_turn"),
        ("no_progress", "incomplete", "no_progress"),
        ("slow_progress", "completed", "end_turn"),
        ("read_too_long", "incomplete", "deadline"),
        ("write_too_long", "incomplete", "deadline"),
        ("no_time", "incomplete", "deadline"),
        ("model_too_slow", "incomplete", "deadline"),
        ("model_error", "failed", "model_error"),
        ("exhausted", "failed", "script_exhausted"),
        ("max_tokens", "incomplete", "max_tokens"),
        ("refusal", "incomplete", "refusal"),
        ("cut_short", "incomplete", "max_tokens"),
        ("empty", "completed", "end_turn"),
        ("slow_model", "completed", "end_turn"),
    ],
)
def test_turn_ends_for_its_reason(turns: Posted, name: str, status: str, reason: str) -> None:
    """Status and stop reason say why a turn ended; only failed turns have an error, and incomplete ones have a text."""
    turn = turns[name]
    assert (turn["status"], turn["stop_reason"]) == (status, reason)
    assert (turn["error"] is None) is (status != "failed")
    assert turn["output_text"] or status == "failed"


def test_steps_beyond_the_budget_are_not_taken(turns: Posted) -> None:
    """The model is asked at most ``max_steps`` times, never with zero, and what ran before is kept."""
    assert turns["max_steps"]["usage"]["steps"] == 2
    assert len(turns["max_steps"]["calls"]) == 2
    assert turns["no_steps"]["usage"]["steps"] == 0
    assert "never said" not in turns["max_steps"]["output_text"] + turns["no_steps"]["output_text"]


def test_turn_that_asks_nobody_tells_of_no_step(turns: Posted, outsider: Outsider) -> None:
    """A turn without steps is started and ends; a turn without time ends without having started."""
    told = {name: [event["type"] for event in outsider.events(turns[name]["id"])] for name in ("no_steps", "no_time")}
    assert told["no_steps"] == ["turn.queued", "turn.started", "turn.incomplete"]
    assert told["no_time"] == ["turn.queued", "turn.incomplete"]
    assert turns["no_steps"]["started_at"]
    assert turns["no_time"]["started_at"] is None


def test_calls_beyond_the_budget_are_denied(turns: Posted) -> None:
    """Calls count in the model's order over all steps; denied ones do not count, and the turn continues."""
    first = turns["max_tool_calls"]
    assert [each["outcome"] for each in first["calls"]] == ["ToolExecutionResult"] * 2 + ["ToolDenied"] * 2
    assert all(content.startswith("denied: budget: ") for content in contents(first)[2:])
    assert first["usage"]["tool_calls"] == 2
    later = contents(turns["calls_over_steps"], 1)
    assert [content.split(":")[1].strip() for content in later if content.startswith("denied")] == [
        "validation",
        "budget",
    ]
    assert contents(turns["no_tool_calls"])[0].startswith("denied: budget: ")
    assert turns["no_tool_calls"]["output_text"] == "done"


def test_first_model_call_is_always_made(turns: Posted) -> None:
    """With a budget of zero tokens the model is asked once, and then the turn ends."""
    assert turns["no_tokens"]["usage"]["steps"] == 1
    assert turns["free"]["output_text"] == "done"


def test_turn_without_progress_is_cut(turns: Posted) -> None:
    """The turn ends after the third equal step; its results are kept, and its text says why it stopped."""
    turn = turns["no_progress"]
    assert (turn["usage"]["steps"], contents(turn, 2)) == (3, ['{"n":1}'])
    assert "never said" not in turn["output_text"]


def test_budget_is_warned_of_once_a_limit(turns: Posted, outsider: Outsider) -> None:
    """The turn's events warn once of each limit, before it is used up or when it is."""
    events = outsider.events(turns["max_tool_calls"]["id"])
    warnings = [event["data"] for event in events if event["type"] == "budget.warning"]
    assert warnings == [{"name": "max_tool_calls", "used": 2, "limit": 2}]


def test_read_longer_than_its_turn_times_out(turns: Posted) -> None:
    """A read that still runs when the turn's time is over is a timeout, and the turn ends on time."""
    turn = turns["read_too_long"]
    (read,) = turn["calls"]
    assert read["outcome"] == "ToolTimeout"
    had_s = float(read["content"].removeprefix("timeout: look did not finish within ").removesuffix(" s"))
    assert 0 < had_s <= 6
    assert 5.9 < finished(turn).timestamp() - _created(turn) < LONG_S


def test_write_longer_than_its_turn_is_in_doubt(turns: Posted) -> None:
    """A write that still runs when the turn's time is over is in doubt, and no later call runs."""
    written, rest = turns["write_too_long"]["calls"]
    assert written["outcome"] == "ToolFailure"
    assert written["content"].startswith("outcome_unknown: ")
    assert rest["content"].startswith("denied: not_run: ")
    assert turns["write_too_long"]["usage"]["tool_calls"] == 1


def test_model_longer_than_its_turn_is_cut(turns: Posted) -> None:
    """The turn ends at its deadline although its model has not answered."""
    turn = turns["model_too_slow"]
    assert finished(turn).timestamp() - _created(turn) < LONG_S
    assert "never said" not in str(turn)


def test_failed_turn_keeps_what_was_done(turns: Posted) -> None:
    """The error names the reason, and calls that ran are kept."""
    failed = turns["model_error"]
    assert failed["error"] == {"code": "model_error", "message": "overloaded for good"}
    assert contents(failed) == ['{"n":1}']
    exhausted = turns["exhausted"]
    assert exhausted["error"]["code"] == "script_exhausted"
    assert exhausted["usage"]["steps"] == 1


def test_text_of_a_turn_cut_by_the_model_is_what_it_said(turns: Posted) -> None:
    """If the model runs out of tokens or refuses, the turn's text is what it had said."""
    assert turns["max_tokens"]["output_text"] == "I was sayi"
    assert turns["refusal"]["output_text"] == "I will not."


def test_calls_of_a_reply_cut_short_do_not_run(turns: Posted) -> None:
    """None of the calls runs if the model ran out of tokens, as the last may be half a call; each has its result."""
    assert contents(turns["cut_short"])[0].startswith("denied: not_run: ")


def test_empty_answer_says_so(turns: Posted) -> None:
    """If the model's last reply is empty, the turn's text is a sentence that says so."""
    assert turns["empty"]["output_text"] == "I could not produce a response."


def test_model_latency_is_waited_for(turns: Posted) -> None:
    """A model that answers slowly, but within the turn's time, is waited for."""
    turn = turns["slow_model"]
    assert turn["output_text"] == "done"
    assert finished(turn).timestamp() - started(turn).timestamp() >= 1.0


def test_usage_is_the_sum_of_the_steps(turns: Posted) -> None:
    """Tokens are added up by kind; a script line without usage costs nothing."""
    used = turns["usage"]["usage"]
    assert used["input_tokens"] == 6
    assert used["output_tokens"] == 2
    assert used["cache_read_tokens"] == 7
    assert used["cache_write_tokens"] == 3
    assert (used["steps"], used["tool_calls"]) == (2, 1)


def test_budget_above_the_agents_is_clamped(outsider: Outsider) -> None:
    """The agent's budget is the cap, and the default of what is not asked for; the turn shows the clamped values."""
    wanted = {"max_steps": 1_000, "max_tool_calls": 3, "timeout_s": 10_000, "max_tokens": 50_000, "max_dollars": 9.0}
    budget = outsider.run("done", budget=wanted)["budget"]
    assert budget["max_steps"] == 20
    assert budget["max_tool_calls"] == 3
    assert budget["timeout_s"] == 240
    assert budget["max_tokens"] == 10_000
    assert budget["max_dollars"] == 1.0


def test_budget_of_an_agent_without_one_is_the_global_default(outsider: Outsider) -> None:
    """The defaults in docs/reference/budgets.md are its defaults and its caps."""
    budget = outsider.run("done", agent="modest", budget={"max_steps": 7, "max_reflections": 9})["budget"]
    assert (budget["max_steps"], budget["max_tool_calls"], budget["max_reflections"]) == (6, 6, 4)
    assert (budget["max_tokens"], budget["max_dollars"], budget["timeout_s"]) == (None, 1.0, 60)
