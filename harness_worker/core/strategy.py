"""How a turn came by its answer, judged by the calls that contributed to it (docs/reference/decisions.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness_worker.core.outcomes import ToolArtifactReference, ToolExecutionResult
from harness_worker.core.recall import Recall
from harness_worker.core.records import Call
from harness_worker.wire import Strategy

TOOL: Final = "tool"
"""The kind of a tool that declares none."""

_BY_KIND: Final = (
    ("web", Strategy.WEB_AUGMENTED),
    ("retrieval", Strategy.RETRIEVAL_AUGMENTED),
    (TOOL, Strategy.TOOL_ASSISTED),
)
"""The kinds in order of rank; the first one that was used names the strategy."""


def after_use(used: Sequence[str], calls: Iterable[Call]) -> tuple[str, ...]:
    """What was used once these calls have ended; calls that were denied, failed or timed out contribute nothing."""
    gave = (call for call in calls if isinstance(call.outcome, ToolExecutionResult | ToolArtifactReference))
    return tuple(dict.fromkeys((*used, *(call.kind or TOOL for call in gave))))


def strategy_of(recall: Recall) -> Strategy:
    """How a turn with this recall came by its answer."""
    return next((strategy for kind, strategy in _BY_KIND if kind in recall.used), Strategy.DIRECT_ANSWER)
