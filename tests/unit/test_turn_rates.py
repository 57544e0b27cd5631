"""What is taken for a rate, and what is refused with words."""

from __future__ import annotations

import asyncio
import re

import pytest
from limits import RateLimitItem
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter
from redis.exceptions import TimeoutError as Silence

from api_gateway.config import load_settings
from api_gateway.limits import rates as rates_module
from api_gateway.limits.rates import TurnRates, rates_in
from api_gateway.problems import Problem
from harness_worker.errors import ConfigError

URLS = {"database_url": "sqlite:///x", "redis_url": "redis://h"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("120/minute", [(120, 60)]),
        ("120 per minute", [(120, 60)]),
        ("1000/day; 10/second", [(10, 1), (1000, 86_400)]),
        ("5/10 minutes", [(5, 600)]),
    ],
)
def test_rates_are_read_the_shortest_window_first(text: str, told: list[tuple[int, int]]) -> None:
    """A post that a short window refuses must not count in a long one."""
    assert [(rate.amount, rate.get_expiry()) for rate in rates_in(text)] == told
    assert load_settings(**URLS, tenant_rate=text).tenant_rate == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("120", "give turns per time, such as 120/minute or 10/second; 1000/day"),
        ("many/minute", "give turns per time"),
        ("120/fortnight", "give turns per time"),
        ("10/second;", "give turns per time"),
        ("0/minute", "give 1 to 100000 turns, in a time from one second to one day"),
        ("1000000/day", "give 1 to 100000 turns, in a time from one second to one day"),
        ("10/month", "give 1 to 100000 turns, in a time from one second to one day"),
        ("10/2 days", "give 1 to 100000 turns, in a time from one second to one day"),
    ],
)
def test_what_is_no_rate_is_refused(text: str, said: str) -> None:
    """The gateway does not start, and says what is right."""
    with pytest.raises(ConfigError, match=re.escape(f"HARNESS_TENANT_RATE='{text}': {said}")):
        load_settings(**URLS, tenant_rate=text)


def test_rate_without_redis_is_refused() -> None:
    """With RabbitMQ as broker there may be none, and nothing would be counted."""
    with pytest.raises(ConfigError, match="HARNESS_TENANT_RATE is counted in Redis: set HARNESS_REDIS_URL too"):
        TurnRates(None, "1/minute")


@pytest.mark.parametrize(("failures", "tries"), [(1, 3), (2, 2)])
def test_redis_is_asked_twice_before_it_is_taken_to_be_away(
    monkeypatch: pytest.MonkeyPatch, failures: int, tries: int
) -> None:
    """A process that was held up takes that for silence, once; who is silent again lets the post through."""
    seen: list[str] = []

    async def hit(_self: object, _rate: object, name: str, cost: int) -> bool:  # noqa: ARG001 - the limiter's
        seen.append(name)
        if len(seen) <= failures:
            raise Silence
        return True

    monkeypatch.setattr(MovingWindowRateLimiter, "hit", hit)

    async def run() -> None:
        rates = TurnRates("redis://127.0.0.1:1", "1/minute")
        await rates.admit("acme")
        await rates.admit("acme")
        await rates.close()

    asyncio.run(run())
    assert len(seen) == tries, "one that is away is left alone"


def in_memory(_pool: object) -> MemoryStorage:
    """A count without Redis."""
    return MemoryStorage()


@pytest.mark.parametrize(("rate", "turns"), [("1/minute", 1), ("10/minute", 6), ("6/second; 6/minute", 6)])
def test_post_that_was_counted_unheard_is_not_refused_for_it(
    monkeypatch: pytest.MonkeyPatch, rate: str, turns: int
) -> None:
    """Redis may have counted a post whose answer came too late: its second count is no reason to refuse it.

    Here each window's first answer is lost. What is posted next is refused as ever.
    """
    count = MovingWindowRateLimiter.hit
    heard: set[RateLimitItem] = set()

    async def hit(limiter: MovingWindowRateLimiter, rate: RateLimitItem, name: str, cost: int) -> bool:
        is_counted = await count(limiter, rate, name, cost=cost)
        if rate not in heard:
            heard.add(rate)
            raise Silence
        return is_counted

    monkeypatch.setattr(MovingWindowRateLimiter, "hit", hit)
    monkeypatch.setattr(rates_module, "_storage", in_memory)

    async def run() -> None:
        rates = TurnRates("redis://127.0.0.1:1", rate)
        await rates.admit("acme", turns)
        with pytest.raises(Problem, match="as many turns as it may"):
            await rates.admit("acme", turns)
        await rates.close()

    asyncio.run(run())
