"""What the commit that ends a turn adds to the rule that ends it: one small step each, pure (document 002, stage 6).

A step is given a decision whose turn is over, and the turn's agent if this worker serves it. What it makes of the turn
is told by the terminal event, which is made anew behind the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.ending import terminal_event
from harness_worker.core.judges import JUDGED
from harness_worker.core.records import Turn
from harness_worker.core.strategy import strategy_of
from harness_worker.core.tools import AgentSpec

Seal: TypeAlias = Callable[[Decision[Any], Turn, AgentSpec | None], Decision[Any]]
"""Given the decision, the ended turn in it, and the agent."""


def ended_by(snapshot: Snapshot, decision: Decision[Any]) -> Turn | None:
    """The turn as it ends, if the decision ends it."""
    turn = decision.turn
    return turn if turn is not None and turn.status.is_final and not snapshot.turn.status.is_final else None


def with_judges(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """Step 6: the scores that are due."""
    return replace(decision, judges=judges_of(turn, agent))


def judges_of(turn: Turn, agent: AgentSpec | None) -> tuple[str, ...]:
    """Who scores an ended turn."""
    return agent.judges if agent is not None and turn.status in JUDGED else ()


def with_strategy(decision: Decision[Any], turn: Turn, _agent: AgentSpec | None) -> Decision[Any]:
    """Step 7: the decision record."""
    return replace(decision, turn=replace(turn, decision=strategy_of(turn.recall)))


def retold(decision: Decision[T]) -> Decision[T]:
    """With the terminal event, which is the last one, of the turn as it is now."""
    if decision.turn is None:
        return decision
    return replace(decision, events=(*decision.events[:-1], terminal_event(decision.turn)))


SEALS: Final[tuple[tuple[str, Seal], ...]] = (("judges", with_judges), ("decision", with_strategy))
"""The steps, in the order of the document, by the names under which failures are counted."""
