"""Hooks: an application's code that runs at the points of a turn listed in docs/reference/hooks.md.

A hook that raises is logged, counted and otherwise ignored: it denies nothing and breaks nothing. After a crash a hook
may be called again for the same thing. Hooks run in several processes, so what they keep in memory is not shared.
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
    """What every hook is given: the turn's identity."""

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
        arguments: The arguments as they would be run, or as the model gave them if they do not fit the tool.
    """

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolUse(HookEvent):
    """A call that ran has its outcome. Late outcomes, which do not count, are not reported."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    attempt: int
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk(HookEvent):
    """The model produced a piece of text. ``attempt`` rises when the step is asked again and its text starts anew."""

    step: int
    attempt: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport(HookEvent):
    """What the turn itself has used, without its children, and its limits."""

    used: Usage
    budget: BudgetLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(HookEvent):
    """A turn is over.

    Args:
        decision: How it came by its answer.
        citations: The sources that the answer cites.
    """

    status: TurnStatus
    stop_reason: StopReason | None
    output_text: str
    error: Mapping[str, str] | None
    decision: Strategy | None = None
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run. The model reads the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The call must run with these arguments instead. They are validated like the model's."""

    arguments: Mapping[str, Any]


PreToolAnswer: TypeAlias = Deny | Rewrite | None
"""What ``on_pre_tool_use`` may return; ``None`` lets the call run as it is."""


class Hooks:
    """Subclass this, override what you need, and pass instances to ``registry.agent(hooks=(…,))``."""

    def on_turn_start(self, event: TurnStart) -> None:
        """Runs in a coordinator, before the model is asked for the first time."""

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Runs in a coordinator, when it is the turn of a call's wave, unless the call is a duplicate or blocked.

        For calls that need approval, and the rest of their waves, it runs earlier: before the first person is asked.
        """

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """Runs in a tool worker, after the call's outcome was accepted."""

    def on_stream_chunk(self, event: StreamChunk) -> None:
        """Runs in a coordinator, for each piece of text that a streaming model produces."""

    def on_usage(self, event: UsageReport) -> None:
        """Runs in a coordinator, once the turn has ended."""

    def on_turn_end(self, event: TurnEnd) -> None:
        """Runs in a coordinator, after all other hooks."""


def overrides(hooks: Hooks, name: str) -> bool:
    """Whether a hook overrides the method of that name."""
    return getattr(type(hooks), name) is not getattr(Hooks, name)
