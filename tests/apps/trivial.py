"""The smallest app: one agent, one tool, a script that calls it once."""

from __future__ import annotations

from harness_worker import Effect, Registry

registry = Registry()


@registry.tool(effect=Effect.READ_ONLY)
def ping() -> str:
    """Answer pong."""
    return "pong"


registry.agent("trivial", model="scripted:trivial.jsonl", system="Say what the tool says.", tools=[ping])
