"""How often a tenant may post turns. All gateways count together, in Redis, by the moving window of ``limits``."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, Final, cast
from urllib.parse import quote
from weakref import WeakValueDictionary

from limits import RateLimitItem, parse_many
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter
from redis.asyncio import BlockingConnectionPool
from redis.exceptions import RedisError

from api_gateway.problems import Problem
from harness_worker.errors import ConfigError

MOST: Final = 100_000
"""A window keeps the time of each post in it, which takes some twenty bytes."""

LONGEST_S: Final = 86_400
SILENCE_S: Final = 0.5
"""How long Redis may take to connect, or to answer."""

LEFT_ALONE_S: Final = 2.0
"""How long Redis is skipped after a failure, so that only an occasional post waits for it."""

_SILENCE: Final = (RedisError, OSError)
"""What redis-py raises of a Redis that does not answer."""

CONNECTIONS: Final = 16
PREFIX: Final = "harness:rate"

_log = logging.getLogger(__name__)


def rates_in(text: str) -> tuple[RateLimitItem, ...]:
    """The rates of a text such as ``10/second; 1000/day``, the shortest window first.

    Raises:
        ValueError: It is none, or has one that Redis would have to remember too much for.
    """
    try:
        rates = tuple(parse_many(text))
    except ValueError:
        raise ValueError("give turns in a time, such as 120/minute or 10/second; 1000/day") from None
    if not all(1 <= rate.amount <= MOST and 1 <= rate.get_expiry() <= LONGEST_S for rate in rates):
        raise ValueError(f"give 1 to {MOST} turns in a second to a day")
    return tuple(sorted(rates, key=RateLimitItem.get_expiry))


class TurnRates:
    """Counts what each tenant posts.

    Args:
        redis_url: Where.
        rates: What a tenant may post, as :func:`rates_in` takes it; ``None``: any number, and nothing is counted.

    Raises:
        ConfigError: There are rates, and no Redis.
    """

    def __init__(self, redis_url: str | None, rates: str | None) -> None:
        self._rates = rates_in(rates) if rates else ()
        if self._rates and redis_url is None:
            raise ConfigError("HARNESS_TENANT_RATE is counted in Redis: set HARNESS_REDIS_URL too")
        self._pool = _pool(redis_url) if self._rates and redis_url else None
        self._limiter = MovingWindowRateLimiter(_storage(self._pool)) if self._pool else None
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._ask_again_at = -math.inf
        self._is_away = False

    async def admit(self, tenant: str, turns: int = 1) -> None:
        """Count a post of so many turns, unless they are too many. While Redis does not answer, all are let through.

        A tenant's posts are counted one after the other, so that a flood of them waits for itself.

        Raises:
            Problem: 429 ``rate_limited``; without a time to come again if that many never fit.
        """
        for rate in self._rates:
            if turns > rate.amount:
                detail = f"{turns} turns never fit into this tenant's rate ({_words(rate)}): post fewer at once"
                raise Problem("rate_limited", detail)
        if self._limiter is None or self._is_left_alone():
            return
        async with self._asking.setdefault(tenant, asyncio.Lock()), self._free:
            await self._ask(self._limiter, tenant, turns)

    async def close(self) -> None:
        """Give the connections back."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _ask(self, limiter: MovingWindowRateLimiter, tenant: str, turns: int) -> None:
        if self._is_left_alone():  # since this post began to wait
            return
        try:
            refused = await self._counted(limiter, tenant, turns)
        except _SILENCE as error:
            self._leave_alone(error)
            return
        self._is_away = False
        if refused is not None:
            raise refused

    async def _counted(self, limiter: MovingWindowRateLimiter, tenant: str, turns: int) -> Problem | None:
        """The refusal, if a rate is used up. Then none with a longer window has counted the post."""
        name = quote(tenant, safe="")
        for rate in self._rates:
            if not await _fits(limiter, rate, name, turns):
                return _too_many(rate, max(1, math.ceil(await _free_at(limiter, rate, name) - time.time())))
        return None

    def _is_left_alone(self) -> bool:
        return time.monotonic() < self._ask_again_at

    def _leave_alone(self, error: Exception) -> None:
        self._ask_again_at = time.monotonic() + LEFT_ALONE_S
        log = _log.debug if self._is_away else _log.warning
        log("posts are not counted, and none is refused for HARNESS_TENANT_RATE: Redis does not answer: %s", error)
        self._is_away = True


async def _fits(limiter: MovingWindowRateLimiter, rate: RateLimitItem, name: str, turns: int) -> bool:
    """Count a post in one window, unless it is too many.

    A process that was held up takes that for the silence of Redis, so silence is asked again, once. Redis may have
    counted the post the first time: the second answer says only that it is there, and refuses nothing.
    """
    try:
        return await limiter.hit(rate, name, cost=turns)
    except _SILENCE:
        await limiter.hit(rate, name, cost=turns)
        return True


async def _free_at(limiter: MovingWindowRateLimiter, rate: RateLimitItem, name: str) -> float:
    """When a window has room again, seconds since the epoch; silence is asked again, once."""
    try:
        return (await limiter.get_window_stats(rate, name)).reset_time
    except _SILENCE:
        return (await limiter.get_window_stats(rate, name)).reset_time


def _too_many(rate: RateLimitItem, wait_s: int) -> Problem:
    detail = f"this tenant has posted as many turns as it may ({_words(rate)}): ask again in {wait_s} s"
    return Problem("rate_limited", detail, headers={"Retry-After": str(wait_s)})


def _words(rate: RateLimitItem) -> str:
    every = rate.GRANULARITY.name if rate.multiples == 1 else f"{rate.multiples} {rate.GRANULARITY.name}s"
    return f"{rate.amount} per {every}"


def _pool(redis_url: str) -> BlockingConnectionPool:
    """Connections with short timeouts.

    Waiting too long for a free one is reported as Redis being silent; the semaphore prevents that.
    """
    untyped: Any = BlockingConnectionPool
    pool = untyped.from_url(
        redis_url,
        max_connections=CONNECTIONS,
        timeout=SILENCE_S,
        socket_timeout=SILENCE_S,
        socket_connect_timeout=SILENCE_S,
        client_name="harness-gateway",
    )
    return cast("BlockingConnectionPool", pool)


def _storage(pool: BlockingConnectionPool) -> RedisStorage:
    # The URL says no more than which library to use: the pool has the address.
    untyped: Any = RedisStorage
    storage = untyped("async+redis://", implementation="redispy", key_prefix=PREFIX, connection_pool=pool)
    return cast("RedisStorage", storage)
