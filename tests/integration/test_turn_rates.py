"""Floods of posts, counted in a real Redis: no number of simultaneous posts gets past a rate."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

import pytest

from api_gateway.limits.rates import TurnRates
from api_gateway.problems import Problem

POSTS = 3_000

# So many posts hold up their own process, and whatever runs beside it.
pytestmark = pytest.mark.acceptance


async def is_admitted(rates: TurnRates, tenant: str) -> bool:
    """Whether a post is admitted."""
    try:
        await rates.admit(tenant)
    except Problem:
        return False
    return True


def on_redis(gateway_redis: str, work: Callable[[TurnRates], Awaitable[None]]) -> None:
    """Do the work with rates of two posts per hour."""

    async def run() -> None:
        rates = TurnRates(gateway_redis, "2/hour")
        try:
            await work(rates)
        finally:
            await rates.close()

    asyncio.run(run())


def tenants(count: int) -> Sequence[str]:
    """Tenants of whom nothing was counted yet."""
    return [secrets.token_hex(8) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 300])
def test_flood_is_counted_to_its_last_post(gateway_redis: str, caplog: pytest.LogCaptureFixture, count: int) -> None:
    """However many posts wait for a connection, that is not taken for a Redis that is away."""
    names = tenants(count)

    async def flood(rates: TurnRates) -> None:
        posts = [is_admitted(rates, names[number % count]) for number in range(POSTS)]
        assert sum(await asyncio.gather(*posts)) == 2 * count

    on_redis(gateway_redis, flood)
    assert not [record for record in caplog.records if "HARNESS_TENANT_RATE" in record.message]


def test_flood_waits_for_itself(gateway_redis: str) -> None:
    """A post of another tenant is counted long before the flood's posts that came earlier."""
    noisy, quiet = tenants(2)

    async def flood(rates: TurnRates) -> None:
        posts = [asyncio.create_task(is_admitted(rates, noisy)) for _ in range(POSTS)]
        assert await asyncio.create_task(is_admitted(rates, quiet))
        assert sum(post.done() for post in posts) < POSTS / 2
        await asyncio.gather(*posts)

    on_redis(gateway_redis, flood)
