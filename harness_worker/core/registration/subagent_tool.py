"""Makes an agent a tool of another agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Never

from pydantic import Field

from harness_worker.core.budget import agent_limits
from harness_worker.core.registration.delegation import Delegation
from harness_worker.core.registration.resource_keys import beside_others
from harness_worker.core.registration.signature import inspect_function
from harness_worker.core.registration.tool_options import MAX_TIMEOUT_S, TOOL_NAME, tool_options
from harness_worker.core.registration.tool_spec import tool_spec
from harness_worker.core.registration.tools import AgentSpec, ApprovalPolicy, Arguments, ToolSpec
from harness_worker.errors import ConfigError

_ASKED: Final = "The task, with everything it needs to know: it sees nothing else of this conversation."


def subagent_tool(
    agent: AgentSpec,
    *,
    description: str | None,
    approval: ApprovalPolicy,
    approval_timeout_s: float | None,
    parallel: bool,
) -> ToolSpec:
    """The tool.

    Args:
        agent: The agent to ask.
        description: What the model reads about it; ``None``: the agent's own description.
        approval: Whether a person has to agree before it is asked.
        approval_timeout_s: How long that person may take, in seconds; ``None``: as the setting says.
        parallel: Whether it may run beside other agents.

    Raises:
        ConfigError: It cannot be a tool; the message names the agent and says what to change.
    """
    label, said = f"agent_tool({agent.name!r})", agent.description if description is None else description
    _check(agent, label, said, parallel)
    limits = agent_limits(agent.budget)
    given = {"approval": approval, "approval_timeout_s": approval_timeout_s}
    options = replace(tool_options(given, label, MAX_TIMEOUT_S), timeout_s=limits.timeout_s)
    alone = tool_spec(agent.name, said, inspect_function(_ask, label), options)
    tool = replace(alone, delegation=Delegation(agent=agent.name, budget=limits))
    return replace(tool, keys=beside_others(_beside, tool.approval)) if parallel else tool


def _ask(input: Annotated[str, Field(min_length=1, description=_ASKED)]) -> Never:  # noqa: A002 - the argument's name
    raise ConfigError(f"an agent is asked by the harness, not called: {input}")


def _check(agent: AgentSpec, label: str, said: object, parallel: object) -> None:
    if TOOL_NAME.fullmatch(agent.name) is None:
        raise ConfigError(f"{label}: a tool's name is 1 to 64 of A-Z a-z 0-9 _ -; name the agent so")
    if not isinstance(said, str) or not said:
        raise ConfigError(f"{label}: say what it is good for, with description='…' here or at its declaration")
    if not isinstance(parallel, bool):
        raise ConfigError(f"{label}: parallel must be True or False, not {parallel!r}")


def _beside(_arguments: Arguments) -> tuple[str, ...]:
    """Resource keys of a call that conflicts with nothing."""
    return ()
