"""What the commit that ends a turn adds to the rule that ends it: a few small, pure steps.

Each step is given a decision that ends the turn, and the turn's agent if this worker serves it. The terminal event is
made again after the last step, so that it reports what the steps changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from harness_worker.core.decisions import Decision, Snapshot
from harness_worker.core.ending import terminal_event
from harness_worker.core.memory.memories import memories_in
from harness_worker.core.records import Turn
from harness_worker.core.registration.judges import JUDGED
from harness_worker.core.registration.tools import AgentSpec
from harness_worker.core.sources.citations import with_sources
from harness_worker.core.strategy import strategy_of
from harness_worker.wire import MEMORY

Seal: TypeAlias = Callable[[Decision[Any], Turn, AgentSpec | None], Decision[Any]]
"""A step: given the decision, the ended turn in it, and the agent."""


def ended_by(snapshot: Snapshot, decision: Decision[Any]) -> Turn | None:
    """The ended turn, if the decision ends it."""
    turn = decision.turn
    return turn if turn is not None and turn.status.is_final and not snapshot.turn.status.is_final else None


def with_judges(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """The decision, with the scores of the turn's judges due from now on."""
    return replace(decision, judges=judges_of(turn, agent))


def judges_of(turn: Turn, agent: AgentSpec | None) -> tuple[str, ...]:
    """The judges of an ended turn, and with them the model that looks for things to remember, if there is one."""
    if agent is None or turn.status not in JUDGED:
        return ()
    return agent.judges if agent.memory_model is None else (*agent.judges, MEMORY)


def with_strategy(decision: Decision[Any], turn: Turn, _agent: AgentSpec | None) -> Decision[Any]:
    """The decision, with the record of how the turn came by its answer."""
    return replace(decision, turn=replace(turn, decision=strategy_of(turn.recall)))


def with_listed_sources(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """The decision, with the cited sources listed after the answer if the agent shows them."""
    if agent is None or not agent.show_citations:
        return decision
    return replace(decision, turn=replace(turn, output_text=with_sources(turn.output_text, turn.citations)))


def with_memories(decision: Decision[Any], turn: Turn, agent: AgentSpec | None) -> Decision[Any]:
    """The decision, with what an agent with memory remembers of the user's words.

    Nothing is remembered of a turn that failed or was cancelled. These memories are found by rules; those that a model
    finds are due later, like a judge's score (:func:`judges_of`).
    """
    if agent is None or agent.memory is not True or turn.status not in JUDGED:
        return decision
    return replace(decision, memories=memories_in(turn.input))


def retold(decision: Decision[Any], turn: Turn, _agent: AgentSpec | None) -> Decision[Any]:
    """The decision, with its last event, the terminal one, made again from the turn as it is now."""
    return replace(decision, events=(*decision.events[:-1], terminal_event(turn)))


SEALS: Final[tuple[tuple[str, Seal], ...]] = (
    ("citations", with_listed_sources),
    ("memory", with_memories),
    ("judges", with_judges),
    ("decision", with_strategy),
)
"""The steps, by the names under which failures are logged; docs/reference/decisions.md numbers them 1, 4, 6 and 7."""
