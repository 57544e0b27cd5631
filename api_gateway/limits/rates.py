"""How often a tenant may post turns: all gateways count together in Redis, with the moving window of ``limits``."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, Final
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
"""The most turns of a rate: a window keeps the time of each post in it, which takes some twenty bytes."""

LONGEST_S: Final = 86_400
SILENCE_S: Final = 0.5
"""How long Redis may take to connect, or to answer."""

LEFT_ALONE_S: Final = 2.0
"""How long Redis is skipped after a failure, so that only an occasional post waits for it."""

_SILENCE: Final = (RedisError, OSError)
"""What redis-py raises when Redis does not answer."""

CONNECTIONS: Final = 16
PREFIX: Final = "harness:rate"

_log = logging.getLogger(__name__)


def rates_in(text: str) -> tuple[RateLimitItem, ...]:
    """The rates in a text such as ``10/second; 1000/day``, the shortest window first.

    Raises:
        ValueError: It is no such text, or has a rate for which Redis would have to remember too much.
    """
    try:
        rates = tuple(parse_many(text))
    except ValueError:
        raise ValueError("give turns per time, such as 120/minute or 10/second; 1000/day") from None
    if not all(1 <= rate.amount <= MOST and 1 <= rate.get_expiry() <= LONGEST_S for rate in rates):
        raise ValueError(f"give 1 to {MOST} turns, in a time from one second to one day")
    return tuple(sorted(rates, key=RateLimitItem.get_expiry))


class TurnRates:
    """Counts the turns that each tenant posts, and refuses those beyond its rates.

    Args:
        redis_url: Where posts are counted.
        rates: How often a tenant may post, as :func:`rates_in` reads it; ``None``: as often as it likes, uncounted.

    Raises:
        ConfigError: There are rates but no Redis.
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
        """Count a post of so many turns, or refuse it if they are too many; with Redis silent, every post is let in.

        A tenant's posts are counted one after the other, so that a flood of them holds up no other tenant.

        Raises:
            Problem: 429 ``rate_limited``, without ``Retry-After`` if that many turns can never fit.
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
        """Close the connections."""
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
        """Count the post, or return its refusal if a rate is used up; then no rate with a longer window counts it."""
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
        log("Redis does not answer: posts are not counted, and HARNESS_TENANT_RATE refuses none: %s", error)
        self._is_away = True


async def _fits(limiter: MovingWindowRateLimiter, rate: RateLimitItem, name: str, turns: int) -> bool:
    """Count a post in one window; ``False`` if it does not fit.

    To a process that was held up, Redis seems silent, so after silence it is asked once more. It may have counted the
    post the first time, so the second answer shows only that Redis is there, and refuses nothing.
    """
    try:
        return await limiter.hit(rate, name, cost=turns)
    except _SILENCE:
        await limiter.hit(rate, name, cost=turns)
        return True


async def _free_at(limiter: MovingWindowRateLimiter, rate: RateLimitItem, name: str) -> float:
    """When a window has room again, seconds since the epoch; after silence Redis is asked once more."""
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
    return untyped.from_url(
        redis_url,
        max_connections=CONNECTIONS,
        timeout=SILENCE_S,
        socket_timeout=SILENCE_S,
        socket_connect_timeout=SILENCE_S,
        client_name="harness-gateway",
    )


def _storage(pool: BlockingConnectionPool) -> RedisStorage:
    # The URL only says which library to use: the pool has the address.
    untyped: Any = RedisStorage
    return untyped("async+redis://", implementation="redispy", key_prefix=PREFIX, connection_pool=pool)
