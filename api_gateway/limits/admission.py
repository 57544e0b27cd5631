"""A tenant's limits, checked within the transaction that makes a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.problems import Problem
from api_gateway.requests.turns import BudgetRequest
from harness_worker.schema import turns
from harness_worker.wire import TurnStatus

QUEUE_RETRY_S: Final = 5
"""Retry-After, in seconds, when too many turns wait: nobody knows when one of them will end."""

# Turns that wait for a person do not count: they hold no worker, and slow people must not get a post refused.
_COUNTED: Final = (TurnStatus.QUEUED, TurnStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """What each tenant may have; ``None`` means no limit.

    Args:
        budget: The limits that none of its turns may exceed, whatever the agent's budget.
        queue: How many of its turns may be queued or running.
    """

    budget: BudgetRequest | None = None
    queue: int | None = None


async def check_queue(connection: AsyncConnection, tenant: str, most: int, more: int = 1) -> None:
    """Refuse new turns if the tenant would then have more than ``most`` turns queued or running.

    On Postgres, posts made at the same moment do not see each other's turns, so all of them may be let through.

    Args:
        connection: The database.
        tenant: The tenant.
        most: How many turns it may have queued or running.
        more: How many new turns it asks for.

    Raises:
        Problem: 429 ``queue_full``, without ``Retry-After`` if that many turns can never fit.
    """
    if more > most:
        detail = f"{more} turns never fit: at most {most} of this tenant may be queued or running; post fewer at once"
        raise Problem("queue_full", detail)
    unfinished = (turns.c.tenant == tenant, turns.c.finished_at.is_(None), turns.c.status.in_(_COUNTED))
    posted = turns.c.parent_id.is_(None)  # a turn that an agent asks for is part of the turn that asks
    works = turns.c.parked_at.is_(None)  # if parked, all the turns that it asked for wait for people
    last = select(turns.c.id).where(*unfinished, posted, works).limit(1).offset(most - more)
    if (await connection.execute(last)).first() is not None:
        detail = f"this tenant has as many turns queued or running as it may ({most}): wait until some have ended"
        raise Problem("queue_full", detail, headers={"Retry-After": str(QUEUE_RETRY_S)})
