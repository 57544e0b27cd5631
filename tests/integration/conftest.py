"""Fixtures of several modules: services, a gateway, a client of Valkey, and the state of workloads."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from api_gateway.limits import rates
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.testing.services import valkey_service
from harness_worker.workloads.state import WorkloadState
from tests.integration.gateway_kit import Gateway, gateway_on, redis_at


@pytest.fixture(scope="session")
def gateway_redis(valkey_url: str) -> str:
    """The URL of a Redis database that only tests of the gateway use."""
    return valkey_url.rpartition("/")[0] + "/7"


@pytest.fixture
def gateway(database_url: str, gateway_redis: str, request: Any) -> Generator[Gateway]:  # noqa: ANN401 - it has no types
    """A gateway with live events, once on each kind of database; marks called ``gateway`` have its settings."""
    marks: list[pytest.Mark] = [*request.node.iter_markers("gateway")]
    settings = {name: value for mark in reversed(marks) for name, value in mark.kwargs.items()}
    with gateway_on(database_url, gateway_redis, **settings) as running:
        yield running


@pytest.fixture
def pool() -> Generator[ThreadPoolExecutor]:
    """Threads for requests that wait; if a test fails, they end with the gateway."""
    threads = ThreadPoolExecutor(4)
    yield threads
    threads.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def uncounted(gateway_redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no post counted yet, and each that comes, however slow the machine is."""
    monkeypatch.setattr(rates, "SILENCE_S", 20.0)
    with closing(redis_at(gateway_redis)) as redis:
        for key in redis.scan_iter(f"{rates.PREFIX}:*"):
            redis.delete(key)


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
def state(database_url: str) -> Iterator[WorkloadState]:
    """A workload's tables, on SQLite and on Postgres."""
    engine = make_engine(database_url)
    state = WorkloadState(engine)
    state.create()
    yield state
    engine.dispose()
