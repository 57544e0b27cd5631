"""Finds Redis keys that never expire."""

from __future__ import annotations

from harness_worker.adapters.redis.client import RedisClient

FOREVER = -1
SCAN_COUNT = 1_000


def keys_without_ttl(client: RedisClient, *, pattern: str) -> list[str]:
    """Return the keys that match ``pattern`` and never expire, sorted.

    Args:
        client: The Redis to search.
        pattern: A glob, as for ``SCAN MATCH``.
    """
    keys = sorted(matching_keys(client, pattern))
    lifetimes = client.batch([("PTTL", key) for key in keys])
    return [key for key, ttl in zip(keys, lifetimes, strict=True) if ttl == FOREVER]


def matching_keys(client: RedisClient, pattern: str) -> set[str]:
    """Return every key that matches the glob ``pattern``."""
    cursor, found = client.command("SCAN", 0, "MATCH", pattern, "COUNT", SCAN_COUNT)
    keys = set[str](found)
    while cursor:
        cursor, found = client.command("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
        keys.update(found)
    return keys
