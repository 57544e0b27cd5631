"""Which of an agent's many tools a session is offered (docs/reference/tool-selection.md).

They are chosen once, by the first words that the session sends to the agent, and stored with each turn. From then on
tools are only appended: those that the history names. A tool that is not offered may still be called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from harness_worker.core.prompting.artifact_reading import every_tool, refers
from harness_worker.core.prompting.sent import blocks_of
from harness_worker.core.records import Message, TurnPreparation
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.wire import GET_CONTEXT_PACK, READ_ARTIFACT


def selects(agent: AgentSpec) -> bool:
    """Whether the agent has more tools than a session is to be offered."""
    return agent.select_tools is not None and len(agent.tools) > agent.select_tools


def kept(agent: AgentSpec, known: TurnPreparation | None) -> tuple[str, ...]:
    """The names of the tools that this agent has offered the session so far.

    Empty if they have yet to be chosen, or to be chosen again because a deployment has removed all of them.
    """
    names = known.offered.get(agent.name, ()) if known is not None else ()
    return names if any(agent.tool(name) is not None for name in names) else ()


def words_of(tool: ToolSpec) -> str:
    """The text that a tool is found by: its name and description, and those of its arguments."""
    properties: Mapping[str, Any] = tool.schema.get("properties", {})
    arguments = (f"{name} {_description(schema)}" for name, schema in properties.items())
    return " ".join((tool.name, tool.description, *arguments))


def chosen(agent: AgentSpec, ranked: Sequence[int]) -> tuple[str, ...]:
    """The names of as many tools as the agent selects, in the order of their declaration.

    They are the best-ranked tools, then the first of the others. The tool that searches an agent's documents is always
    among them.

    Args:
        agent: The agent.
        ranked: Indexes of its tools, best first; tools that are left out rank equally, after these.
    """
    added = (place for place, tool in enumerate(agent.tools) if tool.name == GET_CONTEXT_PACK)
    places = list(dict.fromkeys((*added, *ranked, *range(len(agent.tools)))))[: agent.select_tools]
    return tuple(agent.tools[place].name for place in sorted(places))


def offered(
    agent: AgentSpec, names: Sequence[str], named: Iterable[str], artifact_reader: ToolSpec
) -> tuple[ToolSpec, ...]:
    """The tools with these names, followed by those that the conversation named, in its order."""
    known = {tool.name: tool for tool in every_tool(agent, artifact_reader)}
    return tuple(known[name] for name in dict.fromkeys((*names, *named)) if name in known)


def named_in(message: Message) -> Iterator[str]:
    """The names of the tools that a message calls, and the reader's if it refers to an artifact."""
    if refers(message):
        yield READ_ARTIFACT
    yield from (str(block.get("name")) for block in blocks_of(message) if block.get("type") == "tool_use")


def callable_tools(agent: AgentSpec, shown: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """The tools that may be called: those that were offered, and the agent's other tools."""
    names = {tool.name for tool in shown}
    return (*shown, *(tool for tool in agent.tools if tool.name not in names))


def _description(schema: object) -> str:
    return str(cast("Mapping[str, object]", schema).get("description", "")) if isinstance(schema, Mapping) else ""
