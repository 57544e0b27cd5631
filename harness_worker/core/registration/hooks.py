"""Hooks: an application's code at the points of a turn that docs/reference/hooks.md lists.

A hook that raises is logged, counted and otherwise ignored: it denies nothing and breaks nothing. After a crash a hook
may be called again for the same thing. Hooks run in several processes: what they remember in memory is not shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness_worker.core.budget import BudgetLimits, Usage
from harness_worker.core.outcomes import ToolOutcome
from harness_worker.core.sources.citations import Citation
from harness_worker.wire import StopReason, Strategy, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """What every hook is told: whose turn it is."""

    turn_id: str
    session_id: str
    tenant: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(HookEvent):
    """A turn begins."""

    input: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreToolUse(HookEvent):
    """A call is about to be sent.

    Args:
        call_id: ``"{step}.{position}"``.
        tool: Its tool.
        arguments: As they would run; as the model gave them if they do not fit the tool.
    """

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolUse(HookEvent):
    """A call that ran has its outcome, and it counts: a late one is not told."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    attempt: int
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk(HookEvent):
    """The model said a piece of text. ``attempt`` rises when the step is asked again: its text then starts anew."""

    step: int
    attempt: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport(HookEvent):
    """What the turn itself used, without the turns that it asked for, and what it might have used."""

    used: Usage
    budget: BudgetLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(HookEvent):
    """A turn is over.

    Args:
        decision: How it came by its answer.
        citations: What the answer cites.
    """

    status: TurnStatus
    stop_reason: StopReason | None
    output_text: str
    error: Mapping[str, str] | None
    decision: Strategy | None = None
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run; the model reads the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The call shall run with these arguments instead; they are validated like the model's."""

    arguments: Mapping[str, Any]


PreToolAnswer: TypeAlias = Deny | Rewrite | None
"""What ``on_pre_tool_use`` may say; ``None`` lets the call run as it is."""


class Hooks:
    """Subclass this, override what you need, and give instances to ``registry.agent(hooks=(…,))``."""

    def on_turn_start(self, event: TurnStart) -> None:
        """In a coordinator, before the model is asked for the first time."""

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """In a coordinator, when a call's wave has come and it is neither a duplicate nor blocked.

        Calls that need approval are shown earlier, with the rest of their waves: before the first person is asked.
        """

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """In a tool worker, after the call's outcome was accepted."""

    def on_stream_chunk(self, event: StreamChunk) -> None:
        """In a coordinator, for each piece of text a streaming model says."""

    def on_usage(self, event: UsageReport) -> None:
        """In a coordinator, once the turn is over."""

    def on_turn_end(self, event: TurnEnd) -> None:
        """In a coordinator, last of all."""


def overrides(hooks: Hooks, name: str) -> bool:
    """Whether a hook does anything at that point."""
    return getattr(type(hooks), name) is not getattr(Hooks, name)
