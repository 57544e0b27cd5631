"""The settings of connections to SQLite, in both packages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, select

from api_gateway.database import create_engine
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.schema import db_now

FULL = 2


def asked_of_worker(url: str, pragma: str) -> object:
    """The answer of a worker's connection."""
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            return _asked(connection, pragma)
    finally:
        engine.dispose()


def asked_of_gateway(url: str, pragma: str) -> object:
    """The answer of a gateway's connection."""

    async def ask() -> object:
        engine = create_engine(url)
        try:
            async with engine.connect() as connection:
                return await connection.run_sync(_asked, pragma)
        finally:
            await engine.dispose()

    return asyncio.run(ask())


def _asked(connection: Connection, pragma: str) -> object:
    return connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()


@pytest.mark.parametrize("asked", [asked_of_worker, asked_of_gateway])
def test_connections_to_sqlite_sync_every_commit(sqlite_url: str, asked: Callable[[str, str], object]):
    """A loss of power must not undo a commit: a write whose start is forgotten would run again."""
    assert (asked(sqlite_url, "journal_mode"), asked(sqlite_url, "synchronous")) == ("wal", FULL)


@pytest.mark.parametrize("asked", [asked_of_worker, asked_of_gateway])
def test_connections_to_sqlite_check_foreign_keys(sqlite_url: str, asked: Callable[[str, str], object]):
    """A bug of the gateway is refused on SQLite just as on Postgres."""
    assert asked(sqlite_url, "foreign_keys") == 1


def test_clock_of_sqlite_is_the_hosts(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool may have replaced ``time.time`` in its process, to freeze time; leases are compared with it everywhere."""
    before = time.time()
    with monkeypatch.context() as frozen:
        frozen.setattr(time, "time", lambda: 0.0)
        engine = make_engine(sqlite_url)
        with engine.connect() as connection:
            told = connection.execute(select(db_now())).scalar_one()
        engine.dispose()
    assert before <= told <= time.time()
