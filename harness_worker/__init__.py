"""A distributed harness for tool-calling agents: what applications import to declare agents, and to ask them.

Each is loaded when it is first named: declaring tools needs no database library, and a command heeds Ctrl-C before
anything large is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness_worker.bootstrap.inline import AgentHarness
    from harness_worker.bootstrap.registry import Registry
    from harness_worker.client.client import GatewayClient, RequestRefused, StackUnreachable
    from harness_worker.config import Settings
    from harness_worker.core.registration.effects import Effect
    from harness_worker.core.registration.hooks import (
        Deny,
        Hooks,
        PostToolUse,
        PreToolUse,
        Rewrite,
        StreamChunk,
        TurnEnd,
        TurnStart,
        UsageReport,
    )
    from harness_worker.core.registration.judges import Score
    from harness_worker.core.run_context import RunContext
    from harness_worker.errors import ConfigError, ToolError, ToolOutcomeUnknown, ToolTransientError
    from harness_worker.turn.results import CallResult, TurnResult

_LAZY = {
    "AgentHarness": "harness_worker.bootstrap.inline",
    "CallResult": "harness_worker.turn.results",
    "ConfigError": "harness_worker.errors",
    "Deny": "harness_worker.core.registration.hooks",
    "Effect": "harness_worker.core.registration.effects",
    "GatewayClient": "harness_worker.client.client",
    "Hooks": "harness_worker.core.registration.hooks",
    "PostToolUse": "harness_worker.core.registration.hooks",
    "PreToolUse": "harness_worker.core.registration.hooks",
    "Registry": "harness_worker.bootstrap.registry",
    "RequestRefused": "harness_worker.client.client",
    "Rewrite": "harness_worker.core.registration.hooks",
    "RunContext": "harness_worker.core.run_context",
    "Score": "harness_worker.core.registration.judges",
    "Settings": "harness_worker.config",
    "StackUnreachable": "harness_worker.client.client",
    "StreamChunk": "harness_worker.core.registration.hooks",
    "ToolError": "harness_worker.errors",
    "ToolOutcomeUnknown": "harness_worker.errors",
    "ToolTransientError": "harness_worker.errors",
    "TurnEnd": "harness_worker.core.registration.hooks",
    "TurnResult": "harness_worker.turn.results",
    "TurnStart": "harness_worker.core.registration.hooks",
    "UsageReport": "harness_worker.core.registration.hooks",
}

__all__ = [
    "AgentHarness",
    "CallResult",
    "ConfigError",
    "Deny",
    "Effect",
    "GatewayClient",
    "Hooks",
    "PostToolUse",
    "PreToolUse",
    "Registry",
    "RequestRefused",
    "Rewrite",
    "RunContext",
    "Score",
    "Settings",
    "StackUnreachable",
    "StreamChunk",
    "ToolError",
    "ToolOutcomeUnknown",
    "ToolTransientError",
    "TurnEnd",
    "TurnResult",
    "TurnStart",
    "UsageReport",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
