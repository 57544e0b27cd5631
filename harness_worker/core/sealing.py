"""What the commit that ends a turn adds to the rule that ends it: one small step each, pure.

A step is given a decision whose turn is over, and the turn's agent if this worker serves it. What it makes of the turn
is told by the terminal event, which is made anew behind the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from harness_worker.core.decisions import Decision, Snapshot, T
from harness_worker.core.ending import terminal_event
from harness_worker.core.memory.memories import memories_in
from harness_worker.core.records import Turn
from harness_worker.core.registration.judges import JUDGED
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.sources.citations import with_sources
from harness_worker.core.strategy import strategy_of
from harness_worker.wire import MEMORY

Seal: TypeAlias = Callable[[Decision[Any], Turn, AgentSpec | None], Decision[Any]]
"""Given the decision, the ended turn in it, and the agent."""


def ended_by(snapshot: Snapshot, decision: Decision[Any]) -> Turn | None:
    """The turn as it ends, if the decision ends it."""
    turn = decision.turn
    return turn if turn is not None and turn.status.is_final and not snapshot.turn.status.is_final else None


def with_judges(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """What others have to say of the turn, which is due from now on."""
    return replace(decision, judges=judges_of(turn, agent))


def judges_of(turn: Turn, agent: AgentSpec | None) -> tuple[str, ...]:
    """Who scores an ended turn, and whether a model looks for what is worth remembering of it."""
    if agent is None or turn.status not in JUDGED:
        return ()
    return agent.judges if agent.memory_model is None else (*agent.judges, MEMORY)


def with_strategy(decision: Decision[Any], turn: Turn, _agent: AgentSpec | None) -> Decision[Any]:
    """The decision record."""
    return replace(decision, turn=replace(turn, decision=strategy_of(turn.recall)))


def with_listed_sources(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """What the answer cites is listed behind it, for an agent that shows it."""
    if agent is None or not agent.show_citations:
        return decision
    return replace(decision, turn=replace(turn, output_text=with_sources(turn.output_text, turn.citations)))


def with_memories(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """An agent with a memory remembers what the user said, once a turn that neither failed nor was cancelled.

    By rules; what a model finds is due later, like a judge's word (:func:`judges_of`).
    """
    if agent is None or agent.memory is not True or turn.status not in JUDGED:
        return decision
    return replace(decision, memories=memories_in(turn.input))


def retold(decision: Decision[T]) -> Decision[T]:
    """With the terminal event, which is the last one, of the turn as it is now."""
    if decision.turn is None:
        return decision
    return replace(decision, events=(*decision.events[:-1], terminal_event(decision.turn)))


SEALS: Final[tuple[tuple[str, Seal], ...]] = (
    ("citations", with_listed_sources),
    ("memory", with_memories),
    ("judges", with_judges),
    ("decision", with_strategy),
)
"""The steps by the names under which failures are counted; docs/reference/decisions.md has them as 1, 4, 6 and 7."""
