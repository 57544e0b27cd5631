"""Committed events on one Redis stream, for those who watch live. SQL has them; this may lose them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.core.canonical import compact
from harness_worker.ports import Event
from harness_worker.wire import EVENT_STREAM

logger = logging.getLogger(__name__)

KEPT_EVENTS = 10_000
STREAM_TTL_S = 3_600


class RedisEvents:
    """Implements :class:`harness_worker.ports.EventSink`.

    Args:
        client: The Redis that carries the stream.

    Attributes:
        lost: How many events could not be sent, since the start of this process.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self.lost = 0

    def send(self, events: Sequence[Event]) -> None:
        """Append ``events`` to the stream in one round trip. Never raises: what is lost is counted and logged."""
        if not events:
            return
        try:
            self._append(events)
        except Exception as why:  # noqa: BLE001 - never-raises boundary: watching must not fail a committed turn
            self.lost += len(events)
            logger.warning("%d live events of turn %s were lost: %s", len(events), events[0].turn_id, why)

    def _append(self, events: Sequence[Event]) -> None:
        commands = [_append_command(event) for event in events]
        for reply in self._client.batch([*commands, ("EXPIRE", EVENT_STREAM, STREAM_TTL_S)]):
            if isinstance(reply, Exception):
                raise reply


def _append_command(event: Event) -> tuple[str | int, ...]:
    fields = ("turn", event.turn_id, "seq", event.seq, "type", event.type, "at", repr(event.at))
    return ("XADD", EVENT_STREAM, "MAXLEN", "~", KEPT_EVENTS, "*", *fields, "data", compact(event.data))
