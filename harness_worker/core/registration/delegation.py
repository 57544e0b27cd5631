"""How a call of an agent, instead of a function, is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from harness_worker.core.budget import BudgetLimits
from harness_worker.wire import fields_of

INPUT: Final = "input"
"""The argument of such a call: the task for the agent."""

MOST_LEVELS: Final = 3
"""How many levels of agents may call each other, including the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The agent that a call is for, and the limits of that agent's turns."""

    agent: str
    budget: BudgetLimits

    def to_record(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Delegation:
        """The delegation from which :meth:`to_record` made ``record``."""
        return cls(agent=record["agent"], budget=BudgetLimits(**fields_of(BudgetLimits, record["budget"])))
