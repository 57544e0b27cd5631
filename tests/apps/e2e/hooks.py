"""Hooks that write down what they are told, hooks that raise, and hooks that wait."""

from __future__ import annotations

import os
from pathlib import Path

from harness_worker import Deny, Hooks, Rewrite
from harness_worker.core.outcomes import content_of
from harness_worker.core.registration.hooks import (
    HookEvent,
    PostToolUse,
    PreToolAnswer,
    PreToolUse,
    TurnEnd,
    TurnStart,
    UsageReport,
)
from tests.apps.e2e import journal


def hooks_file(base: Path, turn_id: str) -> Path:
    """What the hooks of a turn were told, a line each."""
    return base / f"{turn_id}.hooks"


class Raising(Hooks):
    """Raises wherever it is called."""

    def on_turn_start(self, event: TurnStart) -> None:
        """Raise."""
        raise RuntimeError(event.turn_id)

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Raise."""
        raise SystemExit(event.tool)

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """Raise."""
        raise RuntimeError(event.tool)

    def on_turn_end(self, event: TurnEnd) -> None:
        """Raise."""
        raise RuntimeError(event.turn_id)


class Waiting(Hooks):
    """Keeps a coordinator's thread until the test gives the turn's word."""

    def on_turn_start(self, event: TurnStart) -> None:
        """Note it, and wait for the word."""
        _note(event, "start")
        journal.await_word(event.metadata["word"])


class Noting(Hooks):
    """Writes down what it is told; denies the number 13 and makes 4 of 3."""

    def on_turn_start(self, event: TurnStart) -> None:
        """Note it."""
        _note(event, "start")

    def on_pre_tool_use(self, event: PreToolUse) -> PreToolAnswer:
        """Note it, and judge the number."""
        _note(event, f"pre {event.call_id}")
        match event.arguments.get("n"):
            case 13:
                return Deny("13 brings bad luck")
            case 3:
                return Rewrite({"n": "4"})
            case _:
                return None

    def on_post_tool_use(self, event: PostToolUse) -> None:
        """Note it."""
        _note(event, f"post {event.call_id} {content_of(event.outcome)}")

    def on_usage(self, event: UsageReport) -> None:
        """Note it."""
        _note(event, f"usage {event.used.tool_calls}")

    def on_turn_end(self, event: TurnEnd) -> None:
        """Note it."""
        _note(event, f"end {event.status.value}")


def _note(event: HookEvent, what: str) -> None:
    descriptor = os.open(hooks_file(journal.directory(), event.turn_id), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{what}\n".encode())
    finally:
        os.close(descriptor)
