"""kombu's Redis transport, with one client a channel, and unmoved by bytes that are no message.

kombu makes a ``redis.Redis`` for every message that it sends, takes or acknowledges; making one costs more than the
command does. The client is thread-safe and holds nothing but its connection pool.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.transport import redis

# kombu has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false

log = logging.getLogger(__name__)

MISSHAPEN: Final = (TypeError, ValueError, LookupError, AttributeError, DecodeError, ContentDisallowed)
"""What Celery and kombu raise over bytes, a body or headers that they did not expect."""


def tell_dropped(error: Exception) -> None:
    """Log that a message was none of ours."""
    log.warning("message dropped, it is not one of ours: %s: %s", type(error).__name__, error)


class Channel(redis.Channel):
    """Keeps the client of its ordinary commands for as long as it keeps their pool; drops what it cannot read."""

    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:  # noqa: ANN401 - kombu's own signature
        if asynchronous:  # these own their connection
            return super()._create_client(asynchronous=True)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()
        return self._kept

    def _brpop_read(self, **options: Any) -> Any:  # noqa: ANN401 - kombu's own signature
        try:
            return super()._brpop_read(**options)
        except MISSHAPEN as error:  # what was there has been taken out of the list
            tell_dropped(error)
            return True


class Transport(redis.Transport):
    """kombu's, with these channels."""

    Channel = Channel


def with_our_channels(transport: Any) -> None:  # noqa: ANN401 - any kombu transport
    """Give them to a transport that its URL chose itself: one of sockets or TLS."""
    if getattr(transport, "Channel", None) is redis.Channel:
        transport.Channel = Channel
