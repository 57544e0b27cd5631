"""What the tools of the suite write down themselves, outside the harness: which call really ran, and what it did."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from harness_worker import RunContext

DIRECTORY_VARIABLE = "E2E_DIRECTORY"
LONG_S = 40
"""Longer than any test waits before it does something."""


def directory() -> Path:
    """Where journals and scripts of this run lie."""
    return Path(os.environ[DIRECTORY_VARIABLE])


def scripts_file(base: Path) -> Path:
    """The script file of the suite's agents."""
    return base / "scripts.jsonl"


def notes_file(base: Path) -> Path:
    """What the tools of an MCP server write down."""
    return base / "mcp.notes"


def team_file(base: Path, agent: str) -> Path:
    """The script file of an agent that others ask: its turns have their scripts' names."""
    return base / f"{agent}.jsonl"


def word_file(base: Path, word: str) -> Path:
    """What a test makes when it gives a word that somebody waits for."""
    return base / f"{word}.word"


def await_word(word: str) -> None:
    """Wait until the test gives the word, but not for ever."""
    until = time.monotonic() + LONG_S
    while time.monotonic() < until and not word_file(directory(), word).exists():
        time.sleep(0.02)


def turn_file(base: Path, turn_id: str) -> Path:
    """The journal of one turn."""
    return base / f"{turn_id}.journal"


def entered(ctx: RunContext, **more: object) -> None:
    """Note that a tool's body was entered."""
    _note(ctx, "entered", more)


def left(ctx: RunContext) -> None:
    """Note that a tool's body was left, however it was."""
    _note(ctx, "left", {})


def did(ctx: RunContext, **more: object) -> None:
    """Note an effect on the world."""
    _note(ctx, "effect", more)


def did_once(ctx: RunContext) -> None:
    """Note an effect, unless one with the same idempotency key was noted before."""
    seen = [line for line in read(directory(), ctx.turn_id) if line["event"] == "effect"]
    if not any(line["key"] == ctx.idempotency_key for line in seen):
        did(ctx)


def tries(ctx: RunContext) -> int:
    """Note one more try of an attempt, and say which one it is."""
    _note(ctx, "tried", {})
    return len([line for line in read(directory(), ctx.turn_id) if line["event"] == "tried"])


def read(base: Path, turn_id: str) -> list[dict[str, Any]]:
    """Everything noted for a turn, in order."""
    file = turn_file(base, turn_id)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _note(ctx: RunContext, event: str, more: dict[str, Any]) -> None:
    """One write to a file opened for appending: whole, and kept whatever happens to this process next."""
    who = {"call": ctx.call_id, "attempt": ctx.attempt, "key": ctx.idempotency_key, "pid": os.getpid()}
    line = json.dumps({"event": event, "at": time.time(), **who, **more}) + "\n"
    descriptor = os.open(turn_file(directory(), ctx.turn_id), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
