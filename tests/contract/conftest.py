"""The store on a database of each kind, and Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness_worker.adapters.redis.client import RedisClient
from tests.contract.store_world import World, world_of


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """A store on a fresh database; the test runs once for each kind of database."""
    with world_of(database_url) as world:
        yield world


@pytest.fixture
def postgres_world(postgres_url: str) -> Iterator[World]:
    """A store on Postgres, for tests that need row locks."""
    with world_of(postgres_url) as world:
        yield world


@pytest.fixture(scope="session")
def client(valkey_url: str) -> Iterator[RedisClient]:
    """A client of the session's Valkey."""
    client = RedisClient(valkey_url)
    yield client
    client.disconnect()
