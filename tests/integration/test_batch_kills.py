"""A gateway that is killed while it stores a batch leaves the whole batch, or nothing."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import Engine, create_engine, func, select

from harness_worker.schema import batches, idempotency_keys, messages, sessions, turn_events, turns
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import NOWHERE, GatewayProcess, gateway_on, gateway_process, sync_url

MANY = 4_000
NOTHING, WHOLE = (0,) * 6, (1, MANY, MANY, MANY, MANY, 1)
TABLES = (batches, turns, messages, turn_events, sessions, idempotency_keys)
SHARES = (0.2, 0.4, 0.6, 0.8, 0.95)
"""When it is killed, as a share of the time that a post takes."""

PARAMS = {"agent": "support", "input": "x" * 200}
BODY: Any = {"requests": [{"custom_id": f"t{number}", "params": PARAMS} for number in range(MANY)]}

pytestmark = pytest.mark.acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database with an agent, and the gateways on it."""

    engine: Engine
    database_url: str
    redis_url: str
    directory: Path

    def numbers(self) -> tuple[int, ...]:
        """The number of rows in each table that a post writes to."""
        with self.engine.connect() as connection:
            return tuple(connection.execute(select(func.count()).select_from(table)).scalar_one() for table in TABLES)

    def gateway(self) -> AbstractContextManager[GatewayProcess]:
        """A gateway as operators start it."""
        return gateway_process(self.database_url, self.redis_url, self.directory / "log")

    def struck(self, share: float, took_s: float) -> tuple[int, ...]:
        """The numbers of rows that are left by a post during which the gateway is killed."""
        with self.gateway() as gateway, ThreadPoolExecutor(1) as threads:
            before, at = self.numbers(), time.monotonic() + share * took_s
            posting = threads.submit(post, gateway.url, f"key-{share}")
            wait_until(lambda: time.monotonic() >= at, "the moment", interval_s=0.002)
            gateway.process.kill()
            gateway.process.wait()
            posting.exception(30)
        return tuple(now - was for now, was in zip(self.numbers(), before, strict=True))


@pytest.fixture
def place(database_url: str, gateway_redis: str, tmp_path: Path) -> Generator[Place]:
    """A place on each kind of database."""
    with gateway_on(database_url, gateway_redis, redis_url=NOWHERE):
        pass  # The agent is published.
    engine = create_engine(sync_url(database_url))
    yield Place(engine=engine, database_url=database_url, redis_url=gateway_redis, directory=tmp_path)
    engine.dispose()


def post(url: str, key: str) -> httpx2.Response:
    """Post the batch under this key."""
    return httpx2.post(f"{url}/v1/batches", json=BODY, headers={"Idempotency-Key": key}, timeout=60)


def test_gateway_killed_in_the_midst_of_a_post_leaves_all_or_nothing(place: Place) -> None:
    """The same holds for the key: whatever was left, posting again with it makes one batch."""
    with place.gateway() as gateway:
        began = time.monotonic()
        assert post(gateway.url, "whole").status_code == 202
        took_s = time.monotonic() - began
    left = [place.struck(share, took_s) for share in SHARES]
    assert set(left) <= {NOTHING, WHOLE}
    assert NOTHING in left, "one of them is struck"
    with place.gateway() as gateway:
        assert {post(gateway.url, f"key-{share}").status_code for share in SHARES} == {202}
    assert place.numbers() == tuple((len(SHARES) + 1) * each for each in WHOLE)
