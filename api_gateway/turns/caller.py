"""For whom turns and batches are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import writer_of
from api_gateway.limits.admission import TenantLimits
from api_gateway.turns.idempotency import IdempotencyKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A tenant that has sent a request, and what it may have.

    Args:
        engine: The database.
        tenant: Whose they are.
        new_id: Makes ids; later ones sort later.
        limits: What the tenant may have.
        traceparent: The caller's span, if it named one.
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
        return IdempotencyKeys(self.engine.dialect.name, self.tenant)
