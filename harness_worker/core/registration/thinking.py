"""How hard an agent thinks, and what that allows (docs/reference/thinking.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

ThinkLevel: TypeAlias = Literal["off", "low", "medium", "high"]

THINK_LEVELS: Final[tuple[ThinkLevel, ...]] = get_args(ThinkLevel)
REFLECTION_TOKENS: Final[Mapping[ThinkLevel, int]] = {"off": 0, "low": 500, "medium": 2_000, "high": 5_000}
"""The maximum length of a reflection, in output tokens."""

CONTEXT_WINDOW_TOKENS: Final = 200_000
"""How much a model can read, in tokens."""

COMPACT_AT_TOKENS: Final = CONTEXT_WINDOW_TOKENS * 4 // 5
"""The default length at which a history is compacted, in tokens; it leaves room for what a step adds."""
