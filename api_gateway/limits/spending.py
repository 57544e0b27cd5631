"""What a tenant's turns have used in a day, read from the database now and then."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.concurrency.coalescing import SingleFlight
from api_gateway.problems import Problem
from harness_worker.schema import db_now, turns

WINDOW_S: Final = 86_400.0
REMEMBERED: Final = 20
"""How long a reading is reused, as a multiple of the time it took: so reading takes at most a twentieth of the time.
One that found the budget used up is reused no longer than until there is budget again, as clients were told."""

_NOW: Final = select(db_now()).scalar_subquery()
_RECENT: Final = (
    turns.c.tenant == bindparam("of_tenant"),
    turns.c.created_at > _NOW - WINDOW_S,
    turns.c.created_at <= _NOW + WINDOW_S,  # always true; with one bound alone Postgres expects a third of the table
)
_DOLLARS: Final = turns.c.used["dollars"].as_float()
_SPENT: Final = select(func.coalesce(func.sum(_DOLLARS), 0.0)).where(*_RECENT)
_RUNNING: Final = func.sum(_DOLLARS).over(order_by=turns.c.created_at.desc())
_SUMS: Final = select(turns.c.created_at, _RUNNING.label("dollars")).where(*_RECENT).subquery()
_LAST: Final = func.max(_SUMS.c.created_at)
_FREE: Final = select(_LAST + WINDOW_S - db_now()).where(_SUMS.c.dollars >= bindparam("most"))
"""Seconds until there is budget again: until the newest turn that, with all later ones, exhausts it is a day old."""


@dataclass(slots=True)
class _Account:
    """What is known of a tenant: until when it is reused, and when an exhausted budget is free again."""

    read: SingleFlight[None]
    until: float = -math.inf
    free_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Whether a tenant's daily budget allows new turns.

    Args:
        most: How many dollars its turns of the last 24 hours may have used together.
        free_in_s: If that is used up, in how many seconds it no longer will be; else ``None``.
    """

    most: float
    free_in_s: float | None

    def check(self) -> None:
        """Refuse another turn if the budget is used up.

        Raises:
            Problem: 402 ``budget_exhausted``.
        """
        if self.free_in_s is None:
            return
        wait_s = max(1, math.ceil(self.free_in_s))
        used = f"this tenant's turns of the last 24 hours have used the {self.most:g} dollars that they may use"
        raise Problem("budget_exhausted", f"{used}: ask again in {wait_s} s", headers={"Retry-After": str(wait_s)})


UNLIMITED: Final = Allowance(most=math.inf, free_in_s=None)


class Spending:
    """Holds each tenant to what its turns of the last 24 hours may use together.

    Args:
        engine: The database.
        most: The limit in dollars; ``None``: there is none, and nothing is read.
    """

    def __init__(self, engine: AsyncEngine, most: float | None) -> None:
        self._engine = engine
        self._most = math.inf if most is None else most
        self._accounts: dict[str, _Account] = {}

    async def allowance(self, tenant: str) -> Allowance:
        """Whether the tenant's budget allows new turns, as far as was known a moment ago.

        All of a tenant's posts that come meanwhile share one reading of the database; if it fails, it fails for all.
        """
        if self._most == math.inf:
            return UNLIMITED
        clock, account = asyncio.get_running_loop().time, self._account(tenant)
        if account.until < clock():
            await account.read()
        return Allowance(most=self._most, free_in_s=None if account.free_at is None else account.free_at - clock())

    def _account(self, tenant: str) -> _Account:
        if tenant not in self._accounts:
            self._accounts[tenant] = _Account(SingleFlight(partial(self._read, tenant)))
        return self._accounts[tenant]

    async def _read(self, tenant: str) -> None:
        clock, account = asyncio.get_running_loop().time, self._accounts[tenant]
        began = clock()
        free_in_s = await self._free_in_s(tenant)
        now = clock()
        account.free_at = None if free_in_s is None else now + free_in_s
        account.until = now + min(REMEMBERED * (now - began), free_in_s or math.inf)

    async def _free_in_s(self, tenant: str) -> float | None:
        async with self._engine.connect() as connection:
            spent: float = (await connection.execute(_SPENT, {"of_tenant": tenant})).scalar_one()
            if spent < self._most:
                return None
            return (await connection.execute(_FREE, {"of_tenant": tenant, "most": self._most})).scalar_one()
