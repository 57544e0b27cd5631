"""The tool that the harness itself offers for reading artifacts, and when it does (docs/reference/artifacts.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from harness_worker.core.prompting.sent import blocks_of
from harness_worker.core.records import Message
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import AgentSpec, ToolSpec
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError
from harness_worker.wire import READ_ARTIFACT

MOST_CHARS: Final = 10_000
HEADING_CHARS: Final = 100
"""The most characters that a part's heading takes; subtracted so that the part itself stays inline."""

_REFERENCE: Final = re.compile(r"art_[0-9a-f]+: ")
_DESCRIPTION: Final = (
    "Reads a part of an output that was too long to be shown in full. "
    "Such an output is shown as its id, art_…, and its first characters."
)

Fetch: TypeAlias = Callable[[str, RunContext], str | None]


def reader(fetch: Fetch, *, threshold_chars: int) -> ToolSpec:
    """The tool that reads artifacts.

    Args:
        fetch: Gives the whole text of an artifact of the call's session; ``None`` if the session has none with that id,
            or no longer has it.
        threshold_chars: The length of the longest output that stays inline, in characters.
    """
    registry, most = Registry(), min(MOST_CHARS, threshold_chars - HEADING_CHARS)

    @registry.tool(name=READ_ARTIFACT, effect=Effect.READ_ONLY, description=_DESCRIPTION)
    def read_artifact(  # pyright: ignore[reportUnusedFunction] - its decorator keeps it
        id: str,  # noqa: A002 - the model's word
        ctx: RunContext,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1)] = MOST_CHARS,
    ) -> str:
        text = fetch(id, ctx)
        if text is None:
            raise ToolError(f"this session has no artifact {id[:64]}, or no more: they are kept for a while only")
        return part_of(text, offset, min(limit, most))

    return registry.tools[READ_ARTIFACT]


def part_of(text: str, offset: int, limit: int) -> str:
    """``limit`` characters from ``offset`` on, under a heading that says which part of the whole they are."""
    part = text[offset : offset + limit]
    if not part:
        return f"[nothing: the artifact has {len(text)} characters]"
    return f"[characters {offset} to {offset + len(part)} of {len(text)}]\n{part}"


def tools_for(agent: AgentSpec, artifact_reader: ToolSpec, *, has_artifact: bool) -> tuple[ToolSpec, ...]:
    """The agent's tools, followed by the reader once the conversation contains an artifact.

    A history only grows, so what was offered once is offered for the rest of the session.
    """
    return every_tool(agent, artifact_reader) if has_artifact else agent.tools


def every_tool(agent: AgentSpec, artifact_reader: ToolSpec) -> tuple[ToolSpec, ...]:
    """Every tool that the agent may ever be offered."""
    if not agent.tools or agent.tool(artifact_reader.name) is not None:
        return agent.tools
    return (*agent.tools, artifact_reader)


def refers(message: Message) -> bool:
    """Whether a message contains a call's result that is an artifact's id."""
    results = (block for block in blocks_of(message) if block.get("type") == "tool_result")
    return message.role == "user" and any(_REFERENCE.match(str(result.get("content", ""))) for result in results)
