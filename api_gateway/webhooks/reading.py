"""The state of a turn's webhook, as its client reads it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import AnyRow
from api_gateway.turns.answers import Answer
from harness_worker.schema import turns, webhooks
from harness_worker.wire import rfc3339

WebhookStatus: TypeAlias = Literal["waiting", "trying", "delivered", "given_up"]


class Webhook(Answer):
    """Where a turn's webhook goes, and how its delivery stands. Times are RFC 3339 UTC."""

    url: str
    status: WebhookStatus = Field(
        description="`waiting` for an event, `trying` to deliver one, or finally `delivered` or `given_up`"
    )
    event_seq: int | None = Field(description="the event of the last attempt; null before the first attempt")
    attempts: int = Field(description="how many attempts were made to deliver that event")
    status_code: int | None = Field(description="the status of the endpoint's last answer; null if it gave none")
    error: str | None = Field(description="why the last attempt failed")
    last_attempt_at: str | None
    next_attempt_at: str | None


class Webhooks:
    """Reads the webhooks of one tenant."""

    def __init__(self, engine: AsyncEngine, tenant: str) -> None:
        self._engine = engine
        self._tenant = tenant

    async def of_turn(self, turn_id: str) -> Webhook | None:
        """The turn's webhook; ``None`` if the turn has none, or does not exist."""
        mine = (turns.c.id == turn_id, turns.c.tenant == self._tenant)
        query = select(webhooks).join(turns, turns.c.id == webhooks.c.turn_id).where(*mine)
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else webhook_of(row)


def webhook_of(row: AnyRow) -> Webhook:
    """The webhook that a row of ``webhooks`` describes."""
    status = _status(row)
    next_at = max(row.due_at, row.lease_until or 0.0) if status == "trying" else None
    return Webhook(
        url=row.url,
        status=status,
        event_seq=row.seq if row.attempt else None,
        attempts=row.attempt,
        status_code=row.status_code,
        error=row.error,
        last_attempt_at=rfc3339(row.at),
        next_attempt_at=rfc3339(next_at),
    )


def _status(row: AnyRow) -> WebhookStatus:
    if row.due_at is None:
        return "delivered" if row.error is None else "given_up"
    return "trying" if row.seq > row.told_seq else "waiting"
