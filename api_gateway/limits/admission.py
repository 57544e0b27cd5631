"""What a tenant may ask for, checked within the transaction that makes a turn."""

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
"""When to ask again where too many turns wait: nobody knows when one of them ends."""

# Not those that wait for a person: they hold no worker, and nobody shall be refused because people are slow.
_IN_THE_WAY: Final = (TurnStatus.QUEUED, TurnStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """What each tenant may have; ``None``: as much as it asks for.

    Args:
        budget: What none of its turns may exceed, whatever an agent's budget.
        queue: With so many turns queued or running, it gets no other.
    """

    budget: BudgetRequest | None = None
    queue: int | None = None


async def check_queue(connection: AsyncConnection, tenant: str, most: int, more: int = 1) -> None:
    """Refuse a tenant that would have more than ``most`` turns queued or running.

    On Postgres those who post at the same moment do not see each other's turns: each may be let through.

    Args:
        connection: The database.
        tenant: Whose turns.
        most: How many it may have.
        more: How many it asks for.

    Raises:
        Problem: 429 ``queue_full``; without a time to come again if that many never fit.
    """
    if more > most:
        detail = f"{more} turns never fit: {most} of this tenant may be queued or running; post fewer at once"
        raise Problem("queue_full", detail)
    unfinished = (turns.c.tenant == tenant, turns.c.finished_at.is_(None), turns.c.status.in_(_IN_THE_WAY))
    posted = turns.c.parent_id.is_(None)  # what an agent asks for is a part of the turn that asks
    works = turns.c.parked_at.is_(None)  # else all whom it asked wait for people
    last = select(turns.c.id).where(*unfinished, posted, works).limit(1).offset(most - more)
    if (await connection.execute(last)).first() is not None:
        detail = f"as many turns of this tenant are queued or running as may be ({most}): wait until some have ended"
        raise Problem("queue_full", detail, headers={"Retry-After": str(QUEUE_RETRY_S)})
