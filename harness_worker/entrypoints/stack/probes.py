"""Checks whether the parts of a stack answer."""

from __future__ import annotations

import http.client
from typing import Final
from urllib.parse import urlsplit

import redis

from harness_worker.adapters.celery.broker import reach_broker
from harness_worker.errors import ConfigError, TransientError
from harness_worker.urls import masked

_TIMEOUT_S: Final = 3
_GATEWAY_TIMEOUT_S: Final = 1.0
"""Short, because a request waits in the queue of the supervisor's socket until the gateway accepts connections."""

_OK: Final = 200


def gateway_is_ready(url: str) -> bool:
    """Whether the gateway at ``url`` says that it can take turns."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_GATEWAY_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == _OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def check_redis(url: str) -> None:
    """Make sure that a given Redis answers.

    Raises:
        ConfigError: The URL is invalid.
        TransientError: Nothing usable answers there.
    """
    try:
        client = redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)  # pyright: ignore[reportUnknownMemberType] - untyped
    except ValueError as wrong:
        raise ConfigError(f"HARNESS_REDIS_URL={masked(url)}: {wrong}; give redis://HOST:PORT/DB") from None
    try:
        client.ping()  # pyright: ignore[reportUnknownMemberType] - typed for clients of both colours
    except redis.RedisError as silent:
        raise TransientError(
            f"Redis at {masked(url)} does not answer ({silent}): start it, or correct HARNESS_REDIS_URL; "
            "without that variable `harness up` starts a server of its own"
        ) from None
    finally:
        client.close()


def check_broker(url: str) -> None:
    """Make sure that a given broker answers.

    Raises:
        ConfigError: The URL is invalid.
        TransientError: No broker answers there, or it refuses.
    """
    try:
        reach_broker(url, timeout_s=_TIMEOUT_S)
    except ValueError as wrong:
        raise ConfigError(f"HARNESS_BROKER_URL={masked(url)}: {wrong}") from None
    except TransientError as away:
        raise TransientError(
            f"{away}; start it, or correct HARNESS_BROKER_URL; without that variable Redis is the broker"
        ) from None
