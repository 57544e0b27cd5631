"""The settings of connections to SQLite, in both packages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from api_gateway.database import create_engine
from harness_worker.adapters.sql.engine import make_engine

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
