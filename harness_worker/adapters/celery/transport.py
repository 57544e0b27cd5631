"""kombu's Redis transport, with one lean client for each channel, and robust against bytes that are not a message.

kombu makes a ``redis.Redis`` for every message that it sends, takes or acknowledges, which costs more than the command
itself. The client is thread-safe and holds nothing but its connection pool.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.transport import redis, virtual
from kombu.utils.json import dumps
from redis.exceptions import (
    ConnectionError,  # noqa: A004 - redis-py's own, not the builtin
    RedisError,
    ResponseError,
)

from harness_worker.lean_redis import Command, LeanPool, LeanRedis

# kombu has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false

log = logging.getLogger(__name__)

MISSHAPEN: Final = (
    *(TypeError, ValueError, LookupError, AttributeError, RecursionError, OverflowError),
    *(DecodeError, ContentDisallowed),
)
"""What Celery and kombu raise over bytes, a body or headers that they did not expect."""


def log_dropped(error: Exception) -> None:
    """Log that a message was dropped because it is not one of ours."""
    log.warning("message dropped, it is not one of ours: %s: %s", type(error).__name__, error)


class QoS(redis.QoS):
    """Records messages taken and acknowledged as kombu does, in the same two keys, with less work per command."""

    channel: Any

    def append(self, message: Any, delivery_tag: str) -> None:  # noqa: ANN401 - kombu's own signature
        """Record a message that was taken, so that it is restored unless it is acknowledged in time."""
        delivery = message.delivery_info
        taken = dumps([message._raw, delivery["exchange"], delivery["routing_key"]])  # noqa: SLF001 - as kombu does
        self._transact(
            ("ZADD", self.unacked_index_key, time.time(), delivery_tag),
            ("HSET", self.unacked_key, delivery_tag, taken),
        )
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Remove a message's record. If Redis fails, it is delivered again, but takes up no more place here."""
        try:
            self._transact(("ZREM", self.unacked_index_key, delivery_tag), ("HDEL", self.unacked_key, delivery_tag))
        except RedisError as error:
            _log_unanswered(error)
        finally:
            virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Remove a message's record, or queue the message again; if Redis fails, as for :meth:`ack`."""
        if not requeue:
            return self.ack(delivery_tag)
        try:
            if not self._is_given_up:
                self.restore_by_tag(delivery_tag, leftmost=True)
        except RedisError as error:
            _log_unanswered(error)
        finally:
            virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:  # noqa: ANN401 - kombu's own signature
        """Queue messages that were not acknowledged again, if there is still a connection for it."""
        if not self._is_given_up:
            super().restore_unacked(client)

    @property
    def _is_given_up(self) -> bool:
        """Whether the connection was lost: messages taken over it come again after the visibility timeout."""
        connection = self.channel.connection
        return connection is None or connection.client is None

    def restore_visible(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - kombu's own signature
        """Queue messages that were taken long ago again, from a timer; a Redis that refuses is asked again later."""
        try:
            super().restore_visible(*args, **options)
        except ResponseError as refusal:
            log.warning("messages of lost workers not looked for: redis refused: %s", refusal)

    def _transact(self, *commands: Command) -> None:
        if self._is_given_up:
            return
        with self.channel.conn_or_acquire() as client:
            client.transact(*commands)


def _log_unanswered(error: RedisError) -> None:
    """Log that Redis still has a message as taken; kombu would call that critical, with a traceback."""
    log.warning("a message comes again later, as it could not be answered: %s: %s", type(error).__name__, error)


class Channel(redis.Channel):
    """Keeps one client for ordinary commands for as long as their pool lives; drops messages that it cannot read."""

    QoS = QoS
    _kept: Any = None

    def _get_client(self) -> type[LeanRedis]:
        return LeanRedis

    def _get_pool(self, asynchronous: bool = False) -> LeanPool:
        transport: Any = self.connection
        if transport is None:  # closed by kombu after a command failed; a producer may still hold the channel
            raise ConnectionError("its connection was given up")
        params = self._connparams(asynchronous=asynchronous)
        self.keyprefix_fanout = self.keyprefix_fanout.format(db=params["db"])
        return LeanPool(**params)

    def _create_client(self, asynchronous: bool = False) -> Any:  # noqa: ANN401 - kombu's own signature
        if asynchronous:  # such clients own their connection
            return super()._create_client(asynchronous=True)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()
        return self._kept

    def _brpop_read(self, **options: Any) -> Any:  # noqa: ANN401 - kombu's own signature
        try:
            return super()._brpop_read(**options)
        except MISSHAPEN as error:  # the message has already been taken out of the list
            log_dropped(error)
            return True

    def _receive_one(self, client: Any) -> Any:  # noqa: ANN401 - kombu's own signature
        try:
            return super()._receive_one(client)
        except MISSHAPEN as error:  # a broadcast is not stored, so there is nothing to remove
            log_dropped(error)
            return True


class Transport(redis.Transport):
    """kombu's transport, with our channels."""

    Channel = Channel


def with_our_channels(transport: Any) -> None:  # noqa: ANN401 - any kombu transport
    """Give our channels to a transport chosen by its URL: of Unix sockets, or not the first of several URLs."""
    if getattr(transport, "Channel", None) is redis.Channel:
        transport.Channel = Channel
