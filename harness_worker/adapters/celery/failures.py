"""What a broker's errors mean to whoever asks it something and waits for the answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kombu.exceptions import (
    ChannelError,
    ConnectionError,  # noqa: A004 - RabbitMQ's own, not the builtin
    KombuError,
)
from redis.exceptions import RedisError, ResponseError

from harness_worker.errors import TransientError


@contextmanager
def translated(broker: str = "the broker") -> Generator[None]:
    """Turn the errors of kombu and of its transports into the harness's.

    Args:
        broker: What it is called.

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
