"""A client of Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness_worker.adapters.redis.client import RedisClient


@pytest.fixture(scope="session")
def client(valkey_url: str) -> Iterator[RedisClient]:
    """A client of the session's Valkey."""
    client = RedisClient(valkey_url)
    yield client
    client.disconnect()
