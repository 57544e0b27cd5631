"""Warnings that a limit is nearly used up: one for each limit, in the commit that crosses the threshold."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from harness_worker.core.budget import Spending, TurnBudget
from harness_worker.core.decisions import Decision, T
from harness_worker.core.records import EventDraft, Turn

CONTEXT_LIMIT: Final = "context_tokens"
"""The name of a warning about the history's length; the other warnings bear names of the budget's limits."""


def budget_of(turn: Turn, *, now: float) -> TurnBudget:
    """How much of its limits a turn has used. Time is measured by its deadline, so waiting for others is left out."""
    elapsed_s = max(0.0, turn.budget.timeout_s - (turn.deadline_at - now))
    return TurnBudget(limits=turn.budget, used=turn.spent, elapsed_s=elapsed_s)


def with_warnings(decision: Decision[T], *, now: float) -> Decision[T]:
    """The decision with a ``budget.warning`` for each newly strained limit; none if the turn ends."""
    turn = decision.turn
    if turn is None or turn.status.is_final:
        return decision
    spent = {**budget_of(turn, now=now).snapshot(), **_context_of(turn)}
    strained = [name for name, each in spent.items() if each.is_strained and name not in turn.recall.warned]
    if not strained:
        return decision
    recall = replace(turn.recall, warned=(*turn.recall.warned, *strained))
    events = tuple(EventDraft(type="budget.warning", data={"name": name, **asdict(spent[name])}) for name in strained)
    return replace(decision, turn=replace(turn, recall=recall), events=(*decision.events, *events))


def _context_of(turn: Turn) -> dict[str, Spending]:
    """The last prompt's length beside the length at which the history is compacted, in tokens, if it ever is.

    Empty between a summary and the model call after it, because only that call tells how long the prompt is now.
    """
    prepared = turn.preparation
    if prepared is None or prepared.compact_at is None or prepared.tried_at == turn.step:
        return {}
    return {CONTEXT_LIMIT: Spending(used=prepared.prompt_tokens, limit=prepared.compact_at)}
