"""The gates of a planned call, in their order, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.gates import Gates
from harness_worker.core.outcomes import DenialReason, ToolDenied, content_of
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call, Turn
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.replay import fingerprint
from harness_worker.wire import READ_ARTIFACT
from tests.unit.builders import DEADLINE, NOW, a_call, a_held_turn, a_write, ended

DONE = Recall(done={fingerprint("tool0", {}): "0.0"})
BLOCKED = Recall(blocked={"tool0": "0.1"})
INVALID = ToolDenied(call_id="1.0", tool_name="tool0", reason=DenialReason.VALIDATION, details="n: missing")
CALL = a_call(0, step=1, idempotent=True)
TO_KID = Delegation(agent="kid", budget=BudgetLimits())


def refused(turn: Turn, call: Call = CALL, *, now: float = NOW) -> str | None:
    """The refusal, as the model reads it."""
    refusal = Gates.of(turn, (), now=now).refusal(call)
    return None if refusal is None else content_of(refusal)


def nothing(arguments: Mapping[str, object]) -> None:
    """A tool's function."""


def a_tool(name: str, **changes: Any) -> ToolSpec:  # noqa: ANN401 - any field's value
    """A read that does nothing."""
    registry = Registry()
    registry.add_tool(nothing, name=name, schema={"type": "object"}, description="Raw.")
    return replace(registry.tools[name], **{"effect": Effect.READ_ONLY, **changes})


def a_turn(*, recall: Recall = Recall(), tool_calls: int = 0, timeout_s: float = 60.0) -> Turn:  # noqa: B008 - frozen
    """A turn with two calls allowed."""
    budget = BudgetLimits(max_tool_calls=2, timeout_s=timeout_s)
    return a_held_turn(step=2, budget=budget, used=Usage(tool_calls=tool_calls), recall=recall)


def test_call_that_nothing_speaks_against_passes() -> None:
    """This is the ordinary case."""
    assert refused(a_turn()) is None


def test_each_gate_alone_gives_its_reason() -> None:
    """The gates are duplicate, blocked, validation and budget."""
    assert refused(a_turn(recall=DONE)) == (
        "denied: duplicate: equal to call 0.0, which succeeded; nothing was changed since, so its result still stands"
    )
    assert refused(a_turn(recall=BLOCKED)) == (
        "denied: blocked: tool0 failed for good in call 0.1; it does not run again in this turn"
    )
    assert refused(a_turn(), replace(CALL, outcome=INVALID)) == "denied: validation: n: missing"
    assert refused(a_turn(tool_calls=2)) == "denied: budget: all 2 tool calls of this turn are used"


def test_first_gate_that_refuses_gives_the_reason() -> None:
    """The order is replay, blocked, validation, budget, time."""
    both = replace(BLOCKED, done=DONE.done)
    assert (refused(a_turn(recall=both)) or "").startswith("denied: duplicate")
    assert (refused(a_turn(recall=BLOCKED), replace(CALL, outcome=INVALID)) or "").startswith("denied: blocked")
    assert (refused(a_turn(tool_calls=2), replace(CALL, outcome=INVALID)) or "").startswith("denied: validation")
    assert (refused(a_turn(tool_calls=2), now=DEADLINE - 1) or "").startswith("denied: budget")


def test_tool_deployed_away_is_told_with_those_there_are() -> None:
    """The harness's tool for reading artifacts is always allowed, and listed only where it was offered."""
    gates = Gates.of(a_turn(), (), now=NOW, tools=[a_tool("look"), a_tool("write", effect=Effect.LOCAL_WRITE)])
    refusal = gates.refusal(CALL)
    assert refusal is not None
    assert content_of(refusal) == "denied: validation: unknown tool tool0; available: look, write"
    assert gates.refusal(replace(CALL, tool=READ_ARTIFACT)) is None


@pytest.mark.parametrize(
    ("planned", "now", "runs"),
    [
        (a_call(0), {}, True),
        (a_call(0), {"queue": "other", "retry_safe": False, "timeout_s": 1.0}, True),
        (a_call(0), {"effect": Effect.LOCAL_WRITE}, False),
        (a_call(0), {"effect": None}, False),
        (a_call(0), {"delegation": TO_KID}, False),
        (a_write(0), {"effect": Effect.NETWORK}, True),
        (a_write(0), {"effect": None}, True),
        (a_write(0), {}, False),
        (a_write(0, delegation=TO_KID), {"effect": None}, False),
        (a_write(0, delegation=TO_KID), {"effect": None, "delegation": TO_KID}, True),
    ],
)
def test_call_runs_only_as_the_kind_of_tool_that_it_was_planned_as(
    planned: Call, now: Mapping[str, Any], runs: bool
) -> None:
    """Reads are run again, writes are not, and calls of agents are turns: the kinds must not be mixed up."""
    refusal = Gates.of(a_turn(), (), now=NOW, tools=[a_tool("tool0", **now)]).refusal(planned)
    assert runs is (refusal is None)
    said = None if refusal is None else content_of(refusal)
    assert runs or said == "denied: validation: tool0 was deployed as another kind of tool meanwhile"


@pytest.mark.parametrize(
    ("remaining_s", "timeout_s", "cap_s", "runs"),
    [
        (5.0, 60.0, 10.0, True),
        (4.9, 60.0, 10.0, False),
        (1.1, 60.0, 1.0, True),
        (0.9, 60.0, 1.0, False),
        (5.0, 90.0, 10.0, True),
        (1.1, 12.0, 10.0, True),
        (0.9, 12.0, 10.0, False),
    ],
)
def test_tool_is_not_started_with_too_little_time(
    remaining_s: float, timeout_s: float, cap_s: float, runs: bool
) -> None:
    """It needs five seconds, or its own limit if shorter; short turns need proportionally less."""
    said = refused(a_turn(timeout_s=timeout_s), replace(CALL, timeout_s=cap_s), now=DEADLINE - remaining_s)
    assert runs is (said is None)
    assert runs or (said or "").startswith(f"denied: deadline: {remaining_s:.1f} s are left of this turn; tool0 is not")


def test_gates_know_the_calls_of_the_open_step() -> None:
    """Calls not yet folded into the turn's memory count, and collected ones do not count twice."""
    first = a_call(0, step=1, tool="tool0", idempotent=True)
    again = replace(CALL, position=1)
    assert Gates.of(a_turn(), [ended(first)], now=NOW).refusal(again) is not None
    assert Gates.of(a_turn(), [ended(first, collected=True)], now=NOW).refusal(again) is None
