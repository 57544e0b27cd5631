"""Publishes committed events on one Redis stream, for live readers. They may be lost; SQL has them.

An entry holds the events of one commit, or one hint, of a turn: ``turn``, and ``told``, a JSON list of [seq, type, at,
data as JSON text]; a hint's seq is null.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.core.canonical import compact
from harness_worker.core.records import Event
from harness_worker.lean_redis import Command
from harness_worker.wire import EVENT_STREAM, HintType

log = logging.getLogger(__name__)

Told: TypeAlias = tuple[int | None, str, float, Mapping[str, Any]]

KEPT_ENTRIES = 5_000
STREAM_TTL_S = 3_600
HINTS_OFF_S = 5.0
"""How long no hint is tried after one failed, so that a Redis that hangs does not slow down a model's text."""


class RedisEvents:
    """Implements ``ports.EventSink``.

    Args:
        client: The Redis that carries the stream.
        clock: Monotonic seconds.
    """

    def __init__(self, client: RedisClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._no_hints_until_s = float("-inf")

    def send(self, events: Sequence[Event]) -> None:
        """Append the ``events`` of one commit to the stream, one entry per turn. Never raises; losses are logged."""
        if not events:
            return
        by_turn = groupby(events, key=attrgetter("turn_id"))
        try:
            self._append(_entry(turn_id, [(e.seq, e.type, e.at, e.data) for e in its]) for turn_id, its in by_turn)
        except Exception as why:  # noqa: BLE001 - never-raises boundary: watching must not fail a committed turn
            log.warning("%d live events of turn %s were lost: %s", len(events), events[0].turn_id, why)

    def hint(self, turn_id: str, kind: HintType, data: Mapping[str, Any]) -> None:
        """Append an entry without ``seq``. Never raises; a loss is logged, and hints are left out for a while."""
        if self._clock() < self._no_hints_until_s:
            return
        try:
            self._append([_entry(turn_id, [(None, kind, time.time(), data)])])
        except Exception as why:  # noqa: BLE001 - never-raises boundary: watching must not fail a model's call
            self._no_hints_until_s = self._clock() + HINTS_OFF_S
            log.warning("live text of turn %s was lost: %s", turn_id, why)

    def _append(self, entries: Iterable[Command]) -> None:
        self._client.batch([*entries, ("EXPIRE", EVENT_STREAM, STREAM_TTL_S)])


def _entry(turn_id: str, told: Sequence[Told]) -> Command:
    text = compact([(seq, kind, at, compact(data)) for seq, kind, at, data in told])
    return ("XADD", EVENT_STREAM, "MAXLEN", "~", KEPT_ENTRIES, "*", "turn", turn_id, "told", text)
