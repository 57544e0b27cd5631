"""A process's access to one Redis: connects when first needed and again after a fork, and translates errors."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,  # noqa: A004 - redis-py's own, not the builtin
    InvalidResponse,
    NoScriptError,
    ResponseError,
    TimeoutError,  # noqa: A004 - redis-py's own, not the builtin
)
from redis.retry import Retry

from harness_worker.adapters.redis._lua import Invocation
from harness_worker.errors import ConfigError, TransientError
from harness_worker.lean_redis import Command, LeanPool, LeanRedis

R = TypeVar("R")

SOCKET_TIMEOUT_S = 2.0
HEALTH_CHECK_S = 15
MAX_CONNECTIONS = 1_000


class RedisClient:
    """Connections to one Redis (or Valkey), made lazily, which a forked child cannot share by accident.

    Args:
        url: ``redis://`` or ``rediss://``; nothing is opened before the first use.
        socket_timeout_s: How long one round trip, or one connection attempt, may take.
    """

    def __init__(self, url: str, *, socket_timeout_s: float = SOCKET_TIMEOUT_S) -> None:
        self._url = url
        self._timeout_s = socket_timeout_s
        self._mine: tuple[int, LeanRedis] | None = None

    def command(self, *parts: str | int) -> Any:  # noqa: ANN401 - whatever Redis replies
        """Send one command and return its reply.

        Raises:
            TransientError: Redis did not answer, or refused.
        """
        with redis_errors_are_transient():
            return self._live.execute_command(*parts)

    def run(self, sent: Invocation[R]) -> R:
        """Run one script and return its reply.

        Raises:
            TransientError: Redis did not answer, or refused.
        """
        try:
            return cast("R", self.command(*sent.by_name))
        except NoScriptError:  # a new or flushed Redis; EVAL runs the script and stores it
            return cast("R", self.command(*sent.in_full))

    def run_all(self, sent: Sequence[Invocation[Any]]) -> None:
        """Run several scripts in one round trip; each may be run twice.

        Raises:
            TransientError: Redis did not answer, or refused one of them.
        """
        try:
            self.batch([one.by_name for one in sent])
        except NoScriptError:
            for one in sent:
                self.run(one)

    def batch(self, commands: Sequence[Command]) -> list[Any]:
        """Send several commands in one round trip and return their replies; without any, Redis is not asked.

        Raises:
            TransientError: Redis did not answer, or refused one of them; the others were done.
        """
        if not commands:
            return []
        with redis_errors_are_transient():
            return self._live.batch(commands)

    def disconnect(self) -> None:
        """Drop every connection; call it in a freshly forked child and at the end. The next use connects anew."""
        mine, self._mine = self._mine, None
        if mine is not None:
            mine[1].connection_pool.disconnect()

    @property
    def _live(self) -> LeanRedis:
        """This process's client.

        Raises:
            ConfigError: The URL is not a Redis URL.
        """
        mine = self._mine
        if mine is None or mine[0] != os.getpid():
            # No lock: a lock held by another thread while forking would stay shut in the child for ever. Two threads
            # may each make a client here; the loser's is collected.
            mine = self._mine = (os.getpid(), self._make())
        return mine[1]

    def _make(self) -> LeanRedis:
        try:
            pool = LeanPool.from_url(  # pyright: ignore[reportUnknownMemberType] - its **kwargs are untyped
                self._url,
                decode_responses=True,
                encoding_errors="surrogatepass",
                health_check_interval=HEALTH_CHECK_S,
                max_connections=MAX_CONNECTIONS,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                socket_connect_timeout=self._timeout_s,
                socket_keepalive=True,
                socket_timeout=self._timeout_s,
            )
        except ValueError as invalid:
            raise ConfigError(f"HARNESS_REDIS_URL: {invalid}") from None
        return LeanRedis(connection_pool=pool)


@contextmanager
def redis_errors_are_transient() -> Generator[None]:
    """Turn the errors of a Redis that does not answer, or refuses for now, into passing ones, within the context.

    The same is done for one that refuses the user or the password, and for a server that is not a Redis: while servers
    are being exchanged either may pass, and must not make a turn fail.

    Raises:
        TransientError: There is no connection, or no reply in time; or Redis is loading, out of memory, a replica, or
            lacks replicas.
        redis.exceptions.NoScriptError: Redis does not know the script.
    """
    try:
        yield
    except NoScriptError:
        raise
    except AuthenticationError as refused:
        raise TransientError(f"HARNESS_REDIS_URL: redis refused the credentials: {refused}") from refused
    except (ConnectionError, TimeoutError) as silent:
        raise TransientError(f"redis did not answer: {silent}") from silent
    except InvalidResponse as strange:
        raise TransientError(f"what answered is no redis: {strange}") from strange
    except ResponseError as refusal:
        raise TransientError(f"redis refused: {refusal}") from refusal
