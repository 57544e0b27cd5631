"""Fixtures of several modules: services, a gateway, a client of Valkey, and the state of workloads."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.testing.services import valkey_service
from harness_worker.workloads.state import WorkloadState
from tests.integration.gateway_kit import Gateway, gateway_on, own_db
from tests.receiver import Receiver, receiver


@pytest.fixture
def gateway(database_url: str, valkey_url: str) -> Generator[Gateway]:
    """A gateway with live events, once on each kind of database."""
    with gateway_on(database_url, own_db(valkey_url), own_db(valkey_url)) as running:
        yield running


@pytest.fixture
def client(valkey_url: str) -> Iterator[RedisClient]:
    """A client of the session's Valkey."""
    client = RedisClient(valkey_url)
    yield client
    client.disconnect()


@pytest.fixture
def redis_url() -> Generator[str]:
    """A Valkey that only this test uses."""
    with valkey_service() as url:
        yield url


@pytest.fixture
def other() -> Generator[Receiver]:
    """A receiver of webhooks."""
    with receiver() as found:
        yield found


@pytest.fixture
def state(database_url: str) -> Iterator[WorkloadState]:
    """A workload's tables, on SQLite and on Postgres."""
    engine = make_engine(database_url)
    state = WorkloadState(engine)
    state.create()
    yield state
    engine.dispose()
