"""A distributed harness for tool-calling agents: what an application imports to declare its agents and tools."""

from __future__ import annotations

from harness_worker.bootstrap.inline import AgentHarness
from harness_worker.config import Settings
from harness_worker.core.effects import Effect
from harness_worker.core.registry import Registry
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError, ToolTransientError
from harness_worker.turn.results import CallResult, TurnResult

__all__ = [
    "AgentHarness",
    "CallResult",
    "Effect",
    "Registry",
    "RunContext",
    "Settings",
    "ToolError",
    "ToolTransientError",
    "TurnResult",
]
