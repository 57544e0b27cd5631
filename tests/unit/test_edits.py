"""Arguments that a person gave for a call, checked like a model's; and which calls need a person at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness_worker.core.outcomes import ToolDenied, content_of
from harness_worker.core.records import Call
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec, BoundArguments
from harness_worker.turn.edits import check_edits
from harness_worker.turn.planner import plan_calls
from harness_worker.wire import Approval
from tests.unit.builders import a_turn, a_write


def pay(cents: int) -> int:
    """Pay."""
    return cents


def look(cents: int) -> int:
    """Look."""
    return cents


@pytest.fixture
def agent() -> AgentSpec:
    """An agent one of whose tools needs a person above a hundred cents, the other always."""
    registry = Registry()
    registry.tool(effect=Effect.NETWORK, approval=lambda a: a.cents > 100)(pay)
    registry.tool(effect=Effect.READ_ONLY, approval="always")(look)
    return registry.agent("agent", model="m", tools=["pay", "look"])


def given(tool: str, arguments: dict[str, Any]) -> Call:
    """A call that a person approved with arguments of their own."""
    return a_write(tool=tool, approval=Approval(expires_at=1.0, decision="approve", arguments=arguments))


def test_plan_marks_the_calls_that_need_a_person(agent: AgentSpec) -> None:
    """A rule sees validated arguments; a call that will not run needs nobody; waves are as without approvals."""
    pays: list[dict[str, Any]] = [{"cents": 101}, {"cents": "100"}, {}]
    blocks = [{"type": "tool_use", "id": "u", "name": "pay", "input": given} for given in pays]
    blocks += [{"type": "tool_use", "id": "u", "name": "look", "input": {"cents": cents}} for cents in (1, 2)]
    calls = plan_calls(blocks, a_turn(), agent)
    assert [call.approval for call in calls] == [Approval(), None, None, Approval(), Approval()]
    assert [call.wave for call in calls] == [0, 1, 2, 3, 3]


def test_edits_are_bound_by_the_tool(agent: AgentSpec) -> None:
    """Coerced like a model's, and said so."""
    assert check_edits([given("pay", {"cents": "7"})], agent) == {
        "0.0": BoundArguments(values={"cents": 7}, was_coerced=True)
    }


@pytest.mark.parametrize(
    ("tool", "arguments", "details"),
    [
        ("pay", {"cents": "many"}, "the arguments given with the approval: cents: "),
        ("gone", {}, "unknown tool gone; available: pay, look"),
    ],
)
def test_edits_that_do_not_fit_are_denied(agent: AgentSpec, tool: str, arguments: dict[str, Any], details: str) -> None:
    """The model reads what was wrong."""
    denied = (check_edits([given(tool, arguments)], agent) or {})["0.0"]
    assert isinstance(denied, ToolDenied)
    assert content_of(denied).startswith(f"denied: validation: {details}")


def test_edits_need_the_agent_only_if_there_are_some() -> None:
    """A worker that does not serve the agent can do everything else."""
    plain = replace(given("pay", {}), approval=Approval(expires_at=1.0, decision="approve"))
    assert check_edits([plain], None) == {}
    assert check_edits([given("pay", {})], None) is None
