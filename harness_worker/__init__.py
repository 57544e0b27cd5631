"""A distributed harness for tool-calling agents: what an application imports to declare its agents and tools."""

from __future__ import annotations

from harness_worker.core.effects import Effect
from harness_worker.core.registry import Registry
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError, ToolTransientError

__all__ = ["Effect", "Registry", "RunContext", "ToolError", "ToolTransientError"]
