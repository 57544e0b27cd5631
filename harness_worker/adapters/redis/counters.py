"""Counting what no transaction can: things that happen after the end of what they belong to."""

from __future__ import annotations

import logging

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.errors import TransientError
from harness_worker.wire import COUNTERS

KEPT_S = 30 * 86_400

log = logging.getLogger(__name__)


def count(client: RedisClient, name: str) -> None:
    """Add one to the fleet's counter ``name``. Never raises: what is not counted is logged."""
    try:
        client.batch([("HINCRBY", COUNTERS, name, 1), ("EXPIRE", COUNTERS, KEPT_S)])
    except TransientError as why:
        log.warning("%s not counted: %s", name, why)
