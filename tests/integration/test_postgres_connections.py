"""The settings of connections to Postgres, in both packages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text

from api_gateway.database import create_engine
from harness_worker.adapters.sql.engine import make_engine
from harness_worker.testing.postgres import database_name

ASKED = text("SHOW synchronous_commit")


def asked_of_worker(url: str) -> object:
    """The setting of a worker's connection."""
    engine = make_engine(url)
    try:
        with engine.connect() as connection:
            return connection.execute(ASKED).scalar_one()
    finally:
        engine.dispose()


def asked_of_gateway(url: str) -> object:
    """The setting of a gateway's connection."""

    async def ask() -> object:
        engine = create_engine(url)
        try:
            async with engine.connect() as connection:
                return (await connection.execute(ASKED)).scalar_one()
        finally:
            await engine.dispose()

    return asyncio.run(ask())


@pytest.fixture
def hasty_url(postgres_url: str) -> str:
    """A database whose commits are answered before they are in the log, unless a connection asks for more."""
    name = sql.Identifier(database_name(postgres_url))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(name))
    return postgres_url


@pytest.mark.parametrize("asked", [asked_of_worker, asked_of_gateway])
@pytest.mark.parametrize(("given", "applies"), [("", "on"), ("?options=-c%20synchronous_commit%3Dlocal", "local")])
def test_connections_to_postgres_wait_for_the_log(
    hasty_url: str, given: str, applies: str, asked: Callable[[str], object]
) -> None:
    """A crash of Postgres must not undo a commit, unless the URL itself allows it."""
    assert asked(hasty_url + given) == applies
