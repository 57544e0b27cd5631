"""Asking a broker something and waiting for the answer: whether it can be reached, and what its errors mean."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kombu import Connection
from kombu.exceptions import (
    ChannelError,
    ConnectionError,  # noqa: A004 - RabbitMQ's own, not the builtin
    KombuError,
)
from redis.exceptions import RedisError, ResponseError

from harness_worker.errors import TransientError
from harness_worker.urls import masked


@contextmanager
def broker_errors_are_transient(broker: str = "the broker") -> Generator[None]:
    """Turn the errors of kombu and of its transports that are raised within the context into passing ones.

    Args:
        broker: What messages call the broker.

    Raises:
        TransientError: It does not answer, or refuses: a Redis that is full or a replica, a RabbitMQ that does not know
            the user.
    """
    try:
        yield
    except (ResponseError, ChannelError, ConnectionError) as refusal:
        raise TransientError(f"{broker} refuses: {refusal}") from refusal
    except (KombuError, RedisError, OSError) as silent:
        raise TransientError(f"{broker} does not answer: {silent}") from silent


def reach_broker(url: str, *, timeout_s: int) -> None:
    """Connect to the broker once, within ``timeout_s`` seconds.

    Raises:
        TransientError: It does not answer, or refuses.
    """
    broker = f"the broker at {masked(url)}"
    with broker_errors_are_transient(broker), Connection(url, connect_timeout=timeout_s) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=timeout_s)
