"""Budgets: what is used of each limit, and the warning before it is used up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.decisions import Decision
from harness_worker.core.recall import Recall
from harness_worker.core.records import EventDraft, Turn
from harness_worker.core.warnings import budget_of, with_warnings
from harness_worker.wire import TurnStatus
from tests.unit.builders import DEADLINE, NOW, a_held_turn
from tests.unit.engine_kit import Engine, answers, asks

LIMITS = BudgetLimits(max_steps=10, max_tool_calls=5, max_reflections=0, max_tokens=100, max_dollars=0.5, timeout_s=60)
STEP = EventDraft(type="step.started", data={"step": 1})


def warned(used: Usage, *, now: float = NOW, **changes: object) -> tuple[Turn, list[dict[str, object]]]:
    """The turn after a commit that leaves it with this usage, and what it warns of."""
    turn = replace(a_held_turn(budget=LIMITS, used=used), **changes)  # type: ignore[arg-type]
    decision = with_warnings(Decision(result=None, turn=turn, events=(STEP,)), now=now)
    assert decision.events[0] is STEP
    assert all(event.type == "budget.warning" for event in decision.events[1:])
    assert decision.turn is not None
    return decision.turn, [dict(event.data) for event in decision.events[1:]]


def test_snapshot_tells_every_limit() -> None:
    """What is used and what is allowed, each in its own unit; time is counted from the deadline."""
    used = Usage(input_tokens=1, cache_read_tokens=2, dollars=0.25, steps=3, tool_calls=4, reflections=5)
    turn = a_held_turn(budget=replace(LIMITS, max_tokens=None), used=used)
    spent = budget_of(turn, now=DEADLINE - 45).snapshot()
    assert {name: (each.used, each.limit) for name, each in spent.items()} == {
        "max_steps": (3, 10),
        "max_tool_calls": (4, 5),
        "max_reflections": (5, 0),
        "max_tokens": (3, None),
        "max_dollars": (0.25, 0.5),
        "timeout_s": (15.0, 60),
    }


@pytest.mark.parametrize(
    ("used", "now", "names"),
    [
        (Usage(), NOW, []),
        (Usage(steps=7, tool_calls=3, output_tokens=79, dollars=0.39), NOW, []),
        (Usage(steps=8), NOW, ["max_steps"]),
        (Usage(tool_calls=4), NOW, ["max_tool_calls"]),
        (Usage(output_tokens=80, dollars=0.4), NOW, ["max_tokens", "max_dollars"]),
        (Usage(), DEADLINE - 12, ["timeout_s"]),
        (Usage(reflections=9), NOW, []),
    ],
)
def test_warning_comes_at_four_fifths(used: Usage, now: float, names: list[str]) -> None:
    """For each limit that there is; a limit of zero never left anything to warn of."""
    turn, said = warned(used, now=now)
    assert [each["name"] for each in said] == names
    assert list(turn.recall.warned) == names


def test_warning_says_how_much() -> None:
    """The limit's name, what is used, what is allowed."""
    assert warned(Usage(steps=9))[1] == [{"name": "max_steps", "used": 9, "limit": 10}]


def test_warning_comes_once_a_limit() -> None:
    """Not with each commit from there on, even if some was given back in between."""
    turn, _ = warned(Usage(tool_calls=4))
    again, said = warned(Usage(tool_calls=5, steps=8), recall=turn.recall)
    assert [each["name"] for each in said] == ["max_steps"]
    assert again.recall.warned == ("max_tool_calls", "max_steps")


def test_turn_that_ends_is_not_warned() -> None:
    """Its terminal event is its last."""
    over = a_held_turn(budget=LIMITS, used=Usage(steps=10), status=TurnStatus.INCOMPLETE)
    ending = Decision(result=None, turn=over)
    assert with_warnings(ending, now=NOW) is ending
    untouched: Decision[None] = Decision(result=None)
    assert with_warnings(untouched, now=NOW) is untouched


_SOME = st.integers(0, 12)


@settings(max_examples=200)
@given(uses=st.lists(st.builds(Usage, steps=_SOME, tool_calls=_SOME, output_tokens=st.integers(0, 120)), max_size=8))
def test_warnings_are_never_repeated(uses: list[Usage]) -> None:
    """That holds whatever a turn's usage does from commit to commit."""
    recall, told = Recall(), list[object]()
    for used in uses:
        turn, said = warned(used, recall=recall)
        recall = turn.recall
        told += [each["name"] for each in said]
    assert len(told) == len(set(told))


def test_turn_is_warned_in_the_commit_that_uses_the_budget_up() -> None:
    """Five of six calls sent, then five of six steps taken; the events stand in the log like any other."""
    engine = Engine()
    engine.dispatched(*["look"] * 5)
    assert engine.event_types[-1] == "budget.warning"
    for call_id in engine.sent.calls:
        engine.run(call_id)
    for number in range(4):
        engine.says(asks(f"nonsense{number}"))
        engine.advance()
    engine.says(answers("ok"))
    engine.advance()
    names = [event.data["name"] for event in engine.store.events if event.type == "budget.warning"]
    assert names == ["max_tool_calls", "max_steps"]
