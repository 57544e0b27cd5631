"""How hard an agent thinks, and what that allows (docs/reference/thinking.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

ThinkLevel: TypeAlias = Literal["off", "low", "medium", "high"]

THINK_LEVELS: Final[tuple[ThinkLevel, ...]] = get_args(ThinkLevel)
REFLECTION_TOKENS: Final[Mapping[ThinkLevel, int]] = {"off": 0, "low": 500, "medium": 2_000, "high": 5_000}
"""What a reflection may say at most, in output tokens."""

CONTEXT_WINDOW_TOKENS: Final = 200_000
"""What a model reads at most, in tokens."""

COMPACT_AT_TOKENS: Final = CONTEXT_WINDOW_TOKENS * 4 // 5
"""When a history is compacted if nobody says when: room is left for what a step adds."""
