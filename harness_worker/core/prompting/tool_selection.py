"""Which of an agent's many tools a session is offered (docs/reference/tool-selection.md).

They are chosen once, by the words with which the session first comes to the agent, and kept with each turn. From then
on tools are only appended: those that the history names. A tool that is not offered may be called all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from harness_worker.core.prompting.artifact_reading import every_tool, refers
from harness_worker.core.prompting.sent import blocks_of
from harness_worker.core.records import Message, TurnPreparation
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.wire import GET_CONTEXT_PACK


def selects(agent: AgentSpec) -> bool:
    """Whether the agent has more tools than a session shall be offered."""
    return agent.select_tools is not None and len(agent.tools) > agent.select_tools


def kept(agent: AgentSpec, known: TurnPreparation | None) -> tuple[str, ...]:
    """What the session was offered by this agent before; nothing if it still has to be chosen."""
    return tuple(known.offered.get(agent.name, ())) if known is not None else ()


def words_of(tool: ToolSpec) -> str:
    """What a tool is found by: its name, its description, its arguments with theirs."""
    properties: Mapping[str, Any] = tool.schema.get("properties", {})
    arguments = (f"{name} {_description(schema)}" for name, schema in properties.items())
    return " ".join((tool.name, tool.description, *arguments))


def chosen(agent: AgentSpec, ranked: Sequence[int]) -> tuple[str, ...]:
    """As many tools as the agent selects, in the order of their declaration: the best, then the first of the others.

    The tool that the harness adds for an agent's documents is always among them.

    Args:
        agent: Whose tools.
        ranked: Places of tools, the best first; those that are left out fit alike.
    """
    added = (place for place, tool in enumerate(agent.tools) if tool.name == GET_CONTEXT_PACK)
    places = list(dict.fromkeys((*added, *ranked, *range(len(agent.tools)))))[: agent.select_tools]
    return tuple(agent.tools[place].name for place in sorted(places))


def offered(
    agent: AgentSpec, names: Sequence[str], messages: Iterable[Message], artifact_reader: ToolSpec | None
) -> tuple[ToolSpec, ...]:
    """The tools of these names, and behind them those that the conversation names, in its order.

    The reader is one of these once the conversation refers to an artifact.
    """
    known = {tool.name: tool for tool in every_tool(agent, artifact_reader)}
    appended = (name for message in messages for name in _named(message, artifact_reader))
    return tuple(known[name] for name in dict.fromkeys((*names, *appended)) if name in known)


def callable_tools(agent: AgentSpec, shown: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """What a call may be of: what was offered, and the rest of the agent's own."""
    names = {tool.name for tool in shown}
    return (*shown, *(tool for tool in agent.tools if tool.name not in names))


def _named(message: Message, artifact_reader: ToolSpec | None) -> Iterator[str]:
    if artifact_reader is not None and refers(message):
        yield artifact_reader.name
    yield from (str(block.get("name")) for block in blocks_of(message) if block.get("type") == "tool_use")


def _description(schema: object) -> str:
    return str(cast("Mapping[str, object]", schema).get("description", "")) if isinstance(schema, Mapping) else ""
