"""From what a model said to planned calls: lookup, validation, waves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from harness_worker.core.budget import Usage
from harness_worker.core.outcomes import content_of
from harness_worker.core.records import Call
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tool_options import ToolKeywords
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.ports import ModelReply
from harness_worker.turn.planner import plan_calls, said_by
from harness_worker.wire import Approval
from tests.unit.builders import PROMPT, a_turn


def get(order_id: str) -> str:
    """Read an order."""
    return order_id


def cancel(order_id: str) -> str:
    """Cancel an order."""
    return order_id


@pytest.fixture
def agent() -> AgentSpec:
    """An agent with a read and a write."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY, timeout_s=7)(get)
    registry.tool(effect=Effect.LOCAL_WRITE, queue="slow")(cancel)
    registry.agent("agent", model="m", system="", tools=["get", "cancel"])
    return registry.agents["agent"]


def planned(agent: AgentSpec, *uses: tuple[str, Any], parallel: bool | None = None) -> tuple[Call, ...]:
    """The plan of these tool uses."""
    blocks = [{"type": "tool_use", "id": f"u{i}", "name": n, "input": given} for i, (n, given) in enumerate(uses)]
    return plan_calls(blocks, a_turn(step=2, parallel=parallel), agent)


def test_call_carries_all_that_its_run_needs(agent: AgentSpec) -> None:
    """Position, step, key, cap and queue are settled when planned."""
    read, write = planned(agent, ("get", {"order_id": "W1"}), ("cancel", {"order_id": "W1"}))
    assert (read.call_id, read.tool_use_id, read.effect, read.timeout_s) == ("2.0", "u0", Effect.READ_ONLY, 7)
    assert (write.queue, write.retry_safe, write.idempotency_key) == ("slow", False, "turn:2.1")
    assert (read.wave, write.wave) == (0, 1)


def test_reads_of_one_thing_wait_for_each_other(agent: AgentSpec) -> None:
    """A read's default key is its name with its arguments."""
    calls = planned(agent, *[("get", {"order_id": order}) for order in ("W1", "W2", "W1")])
    assert [call.wave for call in calls] == [0, 0, 1]


def test_equal_calls_of_an_idempotent_read_wait_for_each_other() -> None:
    """Whatever they touch: so that the later one finds what the earlier one came to."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY, idempotent=True, resource_keys=lambda _: ())(get)
    agent = registry.agent("agent", model="m", tools=["get"])
    calls = planned(agent, *[("get", {"order_id": order}) for order in ("W1", "W2", "W1")])
    assert [call.wave for call in calls] == [0, 0, 1]


@pytest.mark.parametrize(("parallel", "waves"), [(None, [0, 0]), (True, [0, 0]), (False, [0, 1])])
def test_turn_may_ask_for_one_call_at_a_time(agent: AgentSpec, parallel: bool | None, waves: list[int]) -> None:
    """``parallel=False`` makes every call sequential."""
    calls = planned(agent, ("get", {"order_id": "W1"}), ("get", {"order_id": "W2"}), parallel=parallel)
    assert [call.wave for call in calls] == waves


def _fails(_: object) -> Any:  # noqa: ANN401 - any rule's answer
    raise ValueError("no idea")


def _mixed_up(_: object) -> Any:  # noqa: ANN401 - any rule's answer
    return 7


@pytest.mark.parametrize("rule", [_fails, _mixed_up])
@pytest.mark.parametrize("option", ["resource_keys", "approval", "lock"])
def test_read_whose_rule_fails_is_a_wave_of_its_own(
    option: str,
    rule: Callable[[object], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whichever rule it is; a person is still asked, the lock of all such calls still taken, and the log says so."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY)(get)
    options = cast("ToolKeywords", {"effect": Effect.READ_ONLY, option: rule})
    registry.tool(name="odd", **options)(get)
    agent = registry.agent("agent", model="m", tools=["get", "odd"])
    calls = planned(agent, *[(name, {"order_id": f"W{i}"}) for i, name in enumerate(("get", "odd", "odd", "get"))])
    assert [call.wave for call in calls] == [0, 1, 2, 3]
    assert [call.approval is not None for call in calls] == [False, *[option == "approval"] * 2, False]
    assert option != "lock" or [tool.lock and tool.lock({"order_id": "W"}) for tool in agent.tools] == [
        None,
        "tool:odd",
    ]
    assert f"tool odd: {option} " in caplog.text


@pytest.mark.parametrize("template", ["order:{order_id}", "order:{order_id[7]}"])
def test_read_whose_rules_can_judge_it_shares_its_wave(template: str) -> None:
    """A rule that works changes no wave; a template that cannot be filled is a rule that fails."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY, lock=template, approval=lambda _: True)(get)
    calls = planned(registry.agent("agent", model="m", tools=["get"]), *[("get", {"order_id": i}) for i in ("1", "2")])
    assert [call.wave for call in calls] == [0, int("7" in template)]


def test_call_knows_how_long_its_tool_lets_a_person_take() -> None:
    """As its tool says when the model asks for it; a call that needs no person has no such time."""
    registry = Registry()
    registry.tool(approval=lambda a: a.order_id == "W1", approval_timeout_s=60)(get)
    registry.tool(name="other", approval="always")(get)
    agent = registry.agent("agent", model="m", tools=["get", "other"])
    calls = planned(agent, *[(name, {"order_id": i}) for name, i in (("get", "W1"), ("get", "W2"), ("other", "W1"))])
    assert [call.approval for call in calls] == [Approval(timeout_s=60), None, Approval()]


def test_agent_whose_approval_fails_is_a_wave_of_its_own() -> None:
    """Like a read."""
    registry = Registry()
    registry.agent("one", model="m", description="One.")
    registry.agent("two", model="m", description="Two.")
    tools = (registry.agent_tool("one", approval=lambda _: False), registry.agent_tool("two", approval=_fails))
    uses = [(name, {"input": str(i)}) for i, name in enumerate(("one", "one", "two", "two"))]
    assert [call.wave for call in planned(registry.agent("agent", model="m", tools=tools), *uses)] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("find", None, "denied: validation: unknown tool find; available: get, cancel"),
        ("get", ["W1"], "denied: validation: arguments must be a JSON object, not list"),
    ],
)
def test_use_that_cannot_run_is_denied(agent: AgentSpec, name: str, given: object, expected: str) -> None:
    """It keeps its place in the plan."""
    (call,) = planned(agent, (name, given))
    assert call.outcome is not None
    assert content_of(call.outcome) == expected


def test_wrong_arguments_are_named(agent: AgentSpec) -> None:
    """A denied read shares the wave it would have run in; a denied unknown tool is alone."""
    calls = planned(agent, ("get", {"order_id": "W1"}), ("get", {"id": 1}), ("nonsense", {}))
    assert [call.wave for call in calls] == [0, 0, 1]
    assert calls[1].outcome is not None
    assert "order_id" in content_of(calls[1].outcome)


def test_denied_read_is_not_asked_what_it_touches(caplog: pytest.LogCaptureFixture) -> None:
    """Its arguments do not fit, so its rule would fail, and part the wave."""
    registry = Registry()
    registry.tool(effect=Effect.READ_ONLY, resource_keys=lambda given: [given["order_id"]])(get)
    agent = registry.agent("agent", model="m", tools=["get"])
    calls = planned(agent, ("get", {"order_id": "W1"}), ("get", {"id": 1}), ("get", {"order_id": "W2"}))
    assert ([call.wave for call in calls], caplog.text) == ([0, 0, 0], "")


def test_agent_without_tools_says_so() -> None:
    """The message does not end in an empty list."""
    agent = AgentSpec(name="a", model="m", system="", tools=())
    (call,) = planned(agent, ("get", {}))
    assert call.outcome is not None
    assert content_of(call.outcome) == "denied: validation: unknown tool get; available: none"


def test_reply_is_read_block_by_block(agent: AgentSpec) -> None:
    """Texts are joined; what is neither text nor tool use is kept verbatim in the message only."""
    content = (
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Let me "},
        {"type": "text", "text": "look."},
        {"type": "tool_use", "id": "u", "name": "get", "input": {"order_id": "W1"}},
    )
    said = said_by(ModelReply(content=content, stop_reason="tool_use", usage=Usage()), a_turn(), agent, PROMPT)
    assert (said.text, said.content, len(said.calls)) == ("Let me look.", content, 1)
