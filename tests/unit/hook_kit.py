"""Hooks that record what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness_worker.core.registration.hooks import HookEvent, Hooks, PreToolAnswer, PreToolUse

Event = TypeVar("Event")


@dataclass(slots=True)
class Recorder(Hooks):
    """Records every call of every hook; about a tool, it answers as it was told to."""

    told: list[HookEvent] = field(default_factory=list[HookEvent])
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def _note(self, event: HookEvent) -> None:
        self.told.append(event)

    on_turn_start = on_post_tool_use = on_stream_chunk = on_usage = on_turn_end = _note

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Note it, and answer."""
        self.told.append(event)
        return self.answers.get(event.tool)

    def of(self, kind: type[Event]) -> list[Event]:
        """What it was called with of that kind."""
        return [event for event in self.told if isinstance(event, kind)]

    @property
    def seen(self) -> list[str]:
        """What it was called with, in short."""
        return [f"{type(e).__name__} {getattr(e, 'call_id', '')}".strip() for e in self.told]
