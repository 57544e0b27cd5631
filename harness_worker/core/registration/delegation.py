"""A call of an agent instead of a function, as it is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from harness_worker.core.budget import BudgetLimits
from harness_worker.wire import fields_of

INPUT: Final = "input"
"""The argument of such a call: what the agent is asked."""

MOST_LEVELS: Final = 3
"""So many agents may be called below each other, the first one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Whom a call is for, and what a turn of that agent may use at most."""

    agent: str
    budget: BudgetLimits

    def to_record(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Delegation:
        """The delegation that :meth:`to_record` made ``record`` of."""
        return cls(agent=record["agent"], budget=BudgetLimits(**fields_of(BudgetLimits, record["budget"])))
