"""A gateway whose connections to Postgres stay open but are never answered again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import create_engine
from api_gateway.metrics import figures
from api_gateway.problems import UNREACHABLE, no_database
from api_gateway.routes import health
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import gateway_on
from tests.relay import Relay

LIMIT_S = 4.0
"""Of each wait for an answer: a second longer than a statement may take here."""
PROBE_S = 1.0
SLACK_S = 10.0


async def ask_again(engine: AsyncEngine, line: Relay) -> None:
    """Use a pooled connection that is no longer answered: the pool notices, and replaces it."""
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
    line.silence()
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))


async def commit(engine: AsyncEngine, line: Relay) -> None:
    """Lose the answers at a commit: the client is told to try again."""
    with pytest.raises(UNREACHABLE) as lost:
        await _written(engine, line)
    assert no_database(lost.value).status == 503


async def _written(engine: AsyncEngine, line: Relay) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE written (id int)"))
        line.silence()


@pytest.mark.parametrize("work", [ask_again, commit])
def test_gateway_heals_though_its_connections_are_never_answered(
    line: Relay, work: Callable[[AsyncEngine, Relay], Awaitable[None]]
) -> None:
    """The wait is given up in time, and the next request gets a connection that works."""

    async def timed() -> tuple[float, float]:
        engine = create_engine(f"{line.url}?options=-c%20statement_timeout%3D3000")
        try:
            began = time.monotonic()
            await work(engine, line)
            lost = time.monotonic()
            async with engine.connect() as connection:
                await connection.execute(text("SELECT 1"))
            return lost - began, time.monotonic() - lost
        finally:
            await engine.dispose()

    lost_s, healed_s = asyncio.run(timed())
    assert LIMIT_S <= lost_s < LIMIT_S + SLACK_S
    assert healed_s < LIMIT_S


@pytest.mark.parametrize(
    ("path", "whole"), [("/readyz", '{"status":"ok"}'), ("/metrics", 'harness_source_up{source="database"} 1.0')]
)
def test_probe_is_answered_in_time_though_the_database_ends_nothing_that_is_cancelled(
    line: Relay, gateway_redis: str, monkeypatch: pytest.MonkeyPatch, path: str, whole: str
) -> None:
    """The driver waits until Postgres has cancelled the statement, but the request does not wait for the driver."""
    with gateway_on(line.url, gateway_redis) as gateway:
        monkeypatch.setattr(health, "CHECK_TIMEOUT_S", PROBE_S)
        monkeypatch.setattr(figures, "TIMEOUT_S", PROBE_S)
        wait_until(lambda: whole in gateway.http.get(path).text, "the gateway to have a connection")
        line.silence()
        began = time.monotonic()
        answer = gateway.http.get(path)
        assert PROBE_S <= time.monotonic() - began < PROBE_S + SLACK_S
        assert whole not in answer.text
        wait_until(lambda: whole in gateway.http.get(path).text, "the gateway to have a connection again", 20.0)
