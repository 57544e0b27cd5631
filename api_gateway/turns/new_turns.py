"""The rows of a turn that is being made: its own, its user message, its first event, and its webhook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.problems import MOST_PROBLEMS, FieldProblem, Problem
from api_gateway.requests.turns import BudgetRequest, TurnRequest
from api_gateway.requests.webhook_urls import host_of
from api_gateway.turns.answers import Budget, Usage
from api_gateway.turns.forking import Origin
from harness_worker.schema import agents
from harness_worker.wire import TurnStatus

LARGEST_COUNT: Final = 2**53

Row: TypeAlias = dict[str, Any]
Caps: TypeAlias = Mapping[str, Any]
"""An agent's complete budget: the most that its turns may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTurn:
    """A turn to store.

    Args:
        id: Its id.
        tenant: The tenant it belongs to.
        session_id: Its session.
        number: Its number in the session, from 1.
        waits: Whether its time limit runs from when a worker takes it, not from when it is made.
        followed: Whether another turn waits for its end.
        request: The request for it.
        budget: What it may use.
        now: The database's time, seconds since the epoch.
        look_at: When it is due for a look, seconds since the epoch.
        traceparent: The caller's span, if the request named one.
        origin: The turn that it is forked from, if it is a fork.
        batch_id: Its batch, if it has one.
        custom_id: The client's name for it in the batch.
    """

    id: str
    tenant: str
    session_id: str
    number: int
    waits: bool
    followed: bool = False
    request: TurnRequest
    budget: Budget
    now: float
    look_at: float
    traceparent: str | None
    origin: Origin | None = None
    batch_id: str | None = None
    custom_id: str | None = None

    def row(self) -> Row:
        """The row of ``turns``."""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "session_id": self.session_id,
            "number": self.number,
            "waits": self.waits,
            "followed": self.followed,
            "agent": self.request.agent,
            "status": TurnStatus.QUEUED,
            "input": self.request.input,
            "priority": self.request.queue_priority,
            "metadata": self.request.metadata or {},
            "parallel": self.request.parallel,
            "system_prompt_override": self.request.system_prompt_override,
            "skill_context": self.request.skill_context,
            "traceparent": self.traceparent,
            "batch_id": self.batch_id,
            "custom_id": self.custom_id,
            "budget": self.budget.model_dump(),
            "used": Usage().model_dump(),
            "last_seq": 1,
            "message_count": 1,
            "cancel_requested": False,
            "deadline_at": self.now + self.budget.timeout_s,
            "wake_at": self.look_at,
            "created_at": self.now,
            **(self.origin.columns if self.origin is not None else {}),
        }

    def message(self) -> Row:
        """The row of ``messages``."""
        return {"turn_id": self.id, "position": 0, "role": "user", "content": self.request.input}

    def event(self) -> Row:
        """The row of ``turn_events``."""
        told = self.origin.told if self.origin is not None else {}
        data = {"agent": self.request.agent, "session_id": self.session_id, **told}
        return {"turn_id": self.id, "seq": 1, "type": "turn.queued", "at": self.now, "data": data}

    def webhook(self) -> Row | None:
        """The row of ``webhooks``, if it has one; event 1 counts as delivered: its client knows that it is queued."""
        url = self.request.webhook
        if url is None:
            return None
        told = {"told_seq": 1, "seq": 1, "attempt": 0, "failures": 0, "due_at": self.now}
        return {"turn_id": self.id, "url": url, "host": host_of(url), **told}


async def caps_of(
    connection: AsyncConnection, wanted: Mapping[str, list[str | int]]
) -> Mapping[str, Mapping[str, Any]]:
    """The budgets of agents, by name.

    Args:
        connection: The database.
        wanted: The agents' names, each with the place in the request where it is named first.

    Raises:
        Problem: 404 ``unknown_agent``.
    """
    found = await connection.execute(select(agents.c.name, agents.c.budget).where(agents.c.name.in_(list(wanted))))
    caps = {row.name: row.budget for row in found}
    missing = {name: loc for name, loc in wanted.items() if name not in caps}
    if missing:
        known = (await connection.execute(select(agents.c.name).order_by(agents.c.name).limit(20))).scalars()
        raise unknown_agents(missing, list(known))
    return caps


def clamped(caps: Caps, *wishes: BudgetRequest | None) -> Budget:
    """The caps, lowered to the limits of each wish in order; a wish never raises a limit."""
    limits = dict(caps)
    wanted = [wish.model_dump(exclude_none=True) for wish in wishes if wish is not None]
    for name, value in chain.from_iterable(each.items() for each in wanted):
        cap = LARGEST_COUNT if limits[name] is None else limits[name]
        limits[name] = min(value, cap)
    return Budget.model_validate(limits)


def unknown_agents(missing: Mapping[str, list[str | int]], known: Sequence[str]) -> Problem:
    """404 ``unknown_agent``, naming the first of them, each with its place if the request may name several.

    Args:
        missing: The unknown agents, in order, each with the place in the request where it is named first.
        known: Some agents that exist.
    """
    there = f"there are: {', '.join(known)}" if known else "no worker has published any agent yet"
    told = [(_place(loc), loc, f"there is no agent {name[:200]!r}") for name, loc in missing.items()][:MOST_PROBLEMS]
    said = [f"{place}: {what}" if place else what for place, _, what in told]
    others = [f"and {len(missing) - len(told)} more are unknown"] if len(missing) > len(told) else []
    errors = [FieldProblem(loc=loc, msg=f"{what}; {there}") for place, loc, what in told if place]
    extra = {"agents": list(known)}
    return Problem("unknown_agent", "; ".join([*said, *others, there]), errors=errors, extra=extra)


def _place(loc: Sequence[str | int]) -> str:
    """The item that names the agent, in a request with several; empty for a request with one."""
    return ".".join(map(str, loc[1:-1]))
