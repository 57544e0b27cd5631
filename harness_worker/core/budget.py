"""What a turn may use and what it has used (docs/reference/budgets.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from harness_worker.core.by_name import ByName
from harness_worker.wire import fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits(ByName):
    """Limits of one turn; ``None`` is no limit. Dollars are US dollars, times seconds."""

    max_steps: int = 6
    max_tool_calls: int = 6
    max_reflections: int = 4
    max_tokens: int | None = None
    max_dollars: float = 1.00
    timeout_s: float = 60.0

    def clamped(self, wanted: Mapping[str, Any] | None) -> BudgetLimits:
        """These limits, lowered to the wanted ones; a wanted limit above its cap is clamped to the cap."""
        merged = dict(self)
        for name, value in (wanted or {}).items():
            if value is not None and name in merged:
                cap = merged[name]
                merged[name] = value if cap is None else min(value, cap)
        return BudgetLimits(**merged)

    def is_spent(self, used: Usage) -> bool:
        """Whether all tokens or dollars are used; even a limit of zero is spent only once something was used."""
        over_tokens = self.max_tokens is not None and 0 < used.tokens >= self.max_tokens
        return over_tokens or 0 < used.dollars >= self.max_dollars


DEFAULT_LIMITS = BudgetLimits()


def agent_limits(mapping: Mapping[str, Any] | None) -> BudgetLimits:
    """An agent's budget mapping as limits; a missing or null key gets the global default."""
    known = fields_of(BudgetLimits, mapping or {})
    given = {name: value for name, value in known.items() if value is not None}
    return BudgetLimits(**given)


TOKEN_CLASSES: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
"""The fields of ``Usage`` that count tokens; each class has its own price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(ByName):
    """What a turn has used so far. ``input_tokens`` does not include cached tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    dollars: float = 0.0
    steps: int = 0
    tool_calls: int = 0
    reflections: int = 0

    def plus(self, other: Usage) -> Usage:
        """The sum, field by field."""
        return Usage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def tokens(self) -> int:
        """The tokens of all classes."""
        return self.prompt_tokens + self.output_tokens

    @property
    def prompt_tokens(self) -> int:
        """The tokens that were sent, cached ones included."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def costs(self) -> dict[str, float]:
        """Tokens by class, and dollars: what a single model call reports."""
        return {name: getattr(self, name) for name in (*TOKEN_CLASSES, "dollars")}


WARNED_SHARE = 0.8
"""The share of a limit whose use triggers a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBudget:
    """A turn's limits, and how much of each it has used.

    Args:
        limits: What it may use.
        used: What it has used.
        elapsed_s: The time it has taken, in seconds.
    """

    limits: BudgetLimits
    used: Usage
    elapsed_s: float

    def snapshot(self) -> dict[str, Spending]:
        """The use of each limit, by the limit's name."""
        return {
            "max_steps": Spending(used=self.used.steps, limit=self.limits.max_steps),
            "max_tool_calls": Spending(used=self.used.tool_calls, limit=self.limits.max_tool_calls),
            "max_reflections": Spending(used=self.used.reflections, limit=self.limits.max_reflections),
            "max_tokens": Spending(used=self.used.tokens, limit=self.limits.max_tokens),
            "max_dollars": Spending(used=self.used.dollars, limit=self.limits.max_dollars),
            "timeout_s": Spending(used=self.elapsed_s, limit=self.limits.timeout_s),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """How much of one limit is used, in the limit's own unit; a limit of ``None`` is no limit."""

    used: float
    limit: float | None

    @property
    def is_strained(self) -> bool:
        """Whether little is left. A limit of zero is never strained: there was nothing to use up."""
        return self.limit is not None and 0 < WARNED_SHARE * self.limit <= self.used
