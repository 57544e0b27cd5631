"""The tenant for whom turns and batches are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import writer_of
from api_gateway.limits.admission import TenantLimits
from api_gateway.turns.idempotency import IdempotencyKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A tenant that has sent a request, and its limits.

    Args:
        engine: The database.
        tenant: The tenant's name.
        new_id: Makes ids that sort by when they were made.
        limits: The tenant's limits.
        traceparent: The caller's span, if the request named one.
    """

    engine: AsyncEngine
    tenant: str
    new_id: Callable[[], str]
    limits: TenantLimits
    traceparent: str | None = None

    @property
    def writer(self) -> AsyncEngine:
        """The database, for transactions that write."""
        return writer_of(self.engine)

    @property
    def keys(self) -> IdempotencyKeys:
        """The tenant's idempotency keys."""
        return IdempotencyKeys(self.tenant)
