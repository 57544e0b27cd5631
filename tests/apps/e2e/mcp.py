"""An agent whose tools are an MCP server's, and one tool of its own."""

from __future__ import annotations

import os
import sys
import time

from harness_worker import Effect, Registry, RunContext
from tests.apps.e2e import journal

registry = Registry()
_names = registry.mcp(
    "side",
    command=[sys.executable, "-m", "tests.apps.mcp.server"],
    env={"NOTES": str(journal.notes_file(journal.directory()))},
    connect_timeout_s=60,
    include=["add", "write", "linger", "hang", "process"],
    tools={
        "add": {"effect": Effect.READ_ONLY},
        "process": {"effect": Effect.READ_ONLY},
        "linger": {"effect": Effect.READ_ONLY, "timeout_s": 30.0},  # for a second server that starts slowly, too
        "hang": {"timeout_s": 10.0},
    },
)


@registry.tool(effect=Effect.READ_ONLY, timeout_s=0.5)
def nap(ctx: RunContext) -> str:
    """Sleep past its time."""
    journal.entered(ctx, pid=os.getpid())
    time.sleep(10)
    return "rested"


registry.agent(
    "worker",
    model=f"scripted:{journal.scripts_file(journal.directory())}",
    tools=[*_names, nap],
    budget={"max_steps": 20, "max_tool_calls": 50, "timeout_s": 120, "max_tokens": 10_000},
)
