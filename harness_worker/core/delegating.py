"""Sending calls of agents: each is a turn of its own, a child, created in the commit that sends it (ADR 33)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness_worker.core.budget import BudgetLimits
from harness_worker.core.gates import MODEL_FLOOR_S, floor_of
from harness_worker.core.queueing import queued_at
from harness_worker.core.records import Call, EventDraft, Turn
from harness_worker.core.registration.delegation import INPUT, Delegation
from harness_worker.core.tracing.trace import call_span_id, caller_of, trace_id_of
from harness_worker.wire import TurnStatus, child_turn_id

KEPT_FLOORS: Final = 1.5
"""How much time a turn keeps for itself, in floors of a model call: one to ask its model, half to notice the ends."""


def children_of(turn: Turn, calls: Sequence[Call], *, now: float) -> tuple[Turn, ...]:
    """The turns to create for calls of agents that are about to be sent side by side.

    They share what is left of the turn's dollars and tokens in equal parts. Each has the turn's remaining time, less
    what the turn needs to ask its own model once more.
    """
    share = _share(turn, len(calls), now=now)
    return tuple(_child(turn, call, call.delegation, share, now=now) for call in calls if call.delegation is not None)


def started_events(children: Iterable[Turn]) -> tuple[EventDraft, ...]:
    """One ``subagent.started`` event per child."""
    return tuple(
        EventDraft(
            type="subagent.started",
            data={"call_id": child.parent_call_id, "turn_id": child.id, "agent": child.agent},
        )
        for child in children
    )


def _child(turn: Turn, call: Call, whom: Delegation, share: BudgetLimits, *, now: float) -> Turn:
    child_id = child_turn_id(turn.id, call.call_id)
    budget = whom.budget.clamped(
        {"max_dollars": share.max_dollars, "max_tokens": share.max_tokens, "timeout_s": share.timeout_s}
    )
    child = Turn(
        id=child_id,
        tenant=turn.tenant,
        session_id=child_id,
        agent=whom.agent,
        status=TurnStatus.QUEUED,
        input=str(call.arguments[INPUT]),
        priority=turn.priority,
        budget=budget,
        metadata=turn.metadata,
        parallel=turn.parallel,
        traceparent=_traceparent(turn, call),
        parent_id=turn.id,
        parent_call_id=call.call_id,
    )
    return queued_at(child, now)


def _share(turn: Turn, count: int, *, now: float) -> BudgetLimits:
    limits, spent = turn.budget, turn.spent
    remaining_s = max(0.0, turn.deadline_at - now)
    kept_s = min(KEPT_FLOORS * floor_of(turn, MODEL_FLOOR_S), remaining_s / 2)
    tokens = None if limits.max_tokens is None else max(1, (limits.max_tokens - spent.tokens) // count)
    dollars = max(0.0, limits.max_dollars - spent.dollars) / count
    return BudgetLimits(max_tokens=tokens, max_dollars=dollars, timeout_s=remaining_s - kept_s)


def _traceparent(turn: Turn, call: Call) -> str:
    """The ``traceparent`` of the call's span in the turn's trace; sampled if that trace is."""
    caller = caller_of(turn.traceparent)
    flags = "01" if caller is None or caller.is_sampled else "00"
    return f"00-{trace_id_of(turn.id, caller):032x}-{call_span_id(turn.id, call.call_id, call.attempt):016x}-{flags}"
