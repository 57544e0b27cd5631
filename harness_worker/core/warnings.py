"""Telling that a budget is nearly used up, once a limit, in the commit that uses it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from harness_worker.core.budget import Spending, TurnBudget
from harness_worker.core.decisions import Decision, T
from harness_worker.core.records import EventDraft, Turn

CONTEXT_LIMIT: Final = "context_tokens"
"""The name under which a warning tells of the history's length; the others are those of the budget."""


def budget_of(turn: Turn, *, now: float) -> TurnBudget:
    """What a turn has used of its limits; its time is that of its deadline, so waiting for others is not in it."""
    elapsed_s = max(0.0, turn.budget.timeout_s - (turn.deadline_at - now))
    return TurnBudget(limits=turn.budget, used=turn.spent, elapsed_s=elapsed_s)


def context_of(turn: Turn) -> dict[str, Spending]:
    """What the last prompt had of the tokens at which the history is compacted, if it ever is.

    Nothing between a summary and the call after it: how long the prompt is now, that one will tell.
    """
    prepared = turn.preparation
    if prepared is None or prepared.compact_at is None or prepared.tried_at == turn.step:
        return {}
    return {CONTEXT_LIMIT: Spending(used=prepared.prompt_tokens, limit=prepared.compact_at)}


def with_warnings(decision: Decision[T], *, now: float) -> Decision[T]:
    """The decision with a ``budget.warning`` for each limit that is newly strained; a turn that ends needs none."""
    turn = decision.turn
    if turn is None or turn.status.is_final:
        return decision
    spent = {**budget_of(turn, now=now).snapshot(), **context_of(turn)}
    strained = [name for name, each in spent.items() if each.is_strained and name not in turn.recall.warned]
    if not strained:
        return decision
    recall = replace(turn.recall, warned=(*turn.recall.warned, *strained))
    events = tuple(EventDraft(type="budget.warning", data={"name": name, **asdict(spent[name])}) for name in strained)
    return replace(decision, turn=replace(turn, recall=recall), events=(*decision.events, *events))
