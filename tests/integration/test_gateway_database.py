"""The gateway's connections to its database: how many, for how long, and to which server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway import database as gateway_database
from api_gateway.problems import UNREACHABLE, no_database
from harness_worker.schema import db_now
from harness_worker.testing.waiting import wait_until
from tests.contract.store_world import World, world_of
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on, problem_of


def test_rush_waits_in_line_and_is_told_of_it_where_that_takes_too_long(
    postgres_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that get no database connection in time are told to try again later; the others are served."""
    monkeypatch.setattr(gateway_database, "POOL_SIZE", 1)  # and one more at need
    monkeypatch.setattr(gateway_database, "POOL_TIMEOUT_S", 0.5)
    with gateway_on(postgres_url, gateway_redis, redis_url=NOWHERE) as gateway, ThreadPoolExecutor(8) as clients:
        gateway.posted()
        with gateway.worker.engine.begin() as connection:
            connection.execute(text("lock table turns in access exclusive mode"))
            posts = [clients.submit(gateway.post) for _ in range(8)]
            wait_until(lambda: sum(post.done() for post in posts) == 6, "all but two to be refused")
            for post in [post for post in posts if post.done()]:
                problem = problem_of(post.result(), 503, "not_ready")
                assert problem["detail"].startswith("more requests at once than this gateway can work on")
                assert int(post.result().headers["retry-after"]) >= 1
        assert sorted(post.result().status_code for post in posts) == [202] * 2 + [503] * 6


def waiting_for_locks(gateway: Gateway) -> int:
    """How many connections to the gateway's database wait for a lock."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with gateway.worker.engine.connect() as connection:
        return connection.execute(text(waiting)).scalar_one()


WALKS = ("metadata.k=never", "agent=nobody", "status=failed&agent=nobody")


def test_lists_that_may_walk_all_turns_hold_one_connection_of_a_tenant(
    postgres_url: str, gateway_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are requested at once, the others wait for that connection, and other requests get theirs."""
    monkeypatch.setattr(gateway_database, "POOL_SIZE", 1)  # and one more at need
    monkeypatch.setattr(gateway_database, "POOL_TIMEOUT_S", 0.5)
    with gateway_on(postgres_url, gateway_redis, redis_url=NOWHERE) as gateway, ThreadPoolExecutor(8) as clients:
        with gateway.worker.engine.begin() as connection:
            connection.execute(text("lock table turns in access exclusive mode"))
            lists = [clients.submit(gateway.http.get, f"/v1/turns?{query}") for query in WALKS * 2]
            usage = clients.submit(gateway.http.get, "/v1/usage")
            wait_until(lambda: waiting_for_locks(gateway) > 0, "a list to wait for the table")
            assert [gateway.http.get("/v1/agents").status_code for _ in range(10)] == [200] * 10
            assert not any(answer.done() for answer in (*lists, usage))
        assert [answer.result().status_code for answer in (*lists, usage)] == [200] * 7


def test_transactions_that_write_to_sqlite_wait_in_line_and_hold_up_no_reader(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are served in the order in which they came, without one that has given up; who reads waits for none."""
    monkeypatch.setattr(gateway_database, "POOL_SIZE", 1)  # to read, ten more at need
    monkeypatch.setattr(gateway_database, "POOL_TIMEOUT_S", 0.5)
    served: list[int] = []

    async def write(engine: AsyncEngine, number: int) -> None:
        async with gateway_database.writer_of(engine).begin():
            served.append(number)

    async def read(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            await connection.execute(select(db_now()))

    async def run(world: World) -> None:
        engine = gateway_database.create_engine(sqlite_url)
        with world.engine.begin():
            writes = [asyncio.create_task(write(engine, number)) for number in range(20)]
            await asyncio.create_task(read(engine))
            writes[7].cancel()
        await asyncio.wait(writes)
        await engine.dispose()

    with world_of(sqlite_url) as world:
        asyncio.run(run(world))
    assert served == [number for number in range(20) if number != 7]


def test_gateways_time_tells_moments_apart(database_url: str) -> None:
    """Its clock is the worker's: the database's, to the microsecond."""

    async def asked() -> list[float]:
        engine = gateway_database.create_engine(database_url)
        async with engine.connect() as connection:
            found = [(await connection.execute(select(db_now()))).scalar_one() for _ in range(20)]
        await engine.dispose()
        return found

    times = asyncio.run(asked())
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("setting", "ours"), [("idle_in_transaction_session_timeout", "5s"), ("statement_timeout", "30s")]
)
@pytest.mark.parametrize("theirs", ["", "9s"])
def test_gateway_holds_no_row_and_no_connection_for_long(
    postgres_url: str, setting: str, ours: str, theirs: str
) -> None:
    """Postgres ends idle transactions and long statements after these times, unless the URL has others."""
    given = f"?options=-c%20{setting}%3D{theirs}" if theirs else ""
    assert shown(postgres_url + given, setting) == (theirs or ours)


@pytest.mark.parametrize(("given", "named"), [("", "harness-gateway"), ("?application_name=mine", "mine")])
def test_connection_of_the_gateway_is_named_as_the_url_says(postgres_url: str, given: str, named: str) -> None:
    """A name in the URL takes precedence, as for a worker's connections."""
    assert shown(postgres_url + given, "application_name") == named


def shown(url: str, setting: str) -> object:
    """What a setting is in a connection of the gateway."""

    async def told() -> object:
        engine = gateway_database.create_engine(url)
        async with engine.connect() as connection:
            found = (await connection.execute(text(f"SHOW {setting}"))).scalar_one()
        await engine.dispose()
        return found

    return asyncio.run(told())


def test_gateway_leaves_a_server_that_only_reads(postgres_url: str) -> None:
    """After a failover old connections refuse writes: the client is told to retry, which uses a new connection."""

    async def failed() -> tuple[Exception, bool]:
        engine = gateway_database.create_engine(f"{postgres_url}?options=-c%20default_transaction_read_only%3Don")
        async with engine.connect() as connection:
            before = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        with pytest.raises(UNREACHABLE) as refused:
            async with engine.begin() as connection:
                await connection.execute(text("CREATE TABLE written (id int)"))
        async with engine.connect() as connection:
            after = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        await engine.dispose()
        return refused.value, before != after

    refused, is_another = asyncio.run(failed())
    assert no_database(refused).status == 503
    assert is_another


def test_gateway_on_a_server_that_only_reads_is_not_ready(postgres_url: str, gateway_redis: str) -> None:
    """After a failover ``/readyz`` and posts say so; connections from then are dropped once the server takes writes."""
    writes = postgres_url.replace("+psycopg", "") + "?options=-c%20default_transaction_read_only%3Doff"
    with (
        gateway_on(postgres_url, gateway_redis) as gateway,
        psycopg.connect(writes, autocommit=True) as admin,
    ):
        assert gateway.http.get("/readyz").status_code == 200
        name = admin.info.dbname
        admin.execute(f'alter database "{name}" set default_transaction_read_only = on'.encode())
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
        admin.execute(ended, [name])
        for answer in (gateway.http.get("/readyz"), gateway.post()):
            problem = problem_of(answer, 503, "not_ready")
            assert problem["missing"] == ["database"]
            assert problem["detail"].startswith("the database takes no writes: it is a replica, or read-only")
        admin.execute(f'alter database "{name}" reset default_transaction_read_only'.encode())
        wait_until(lambda: gateway.http.get("/readyz").status_code == 200, "the gateway to be ready again")
        gateway.posted()


def test_client_of_a_statement_that_took_too_long_is_told_to_try_again(postgres_url: str) -> None:
    """Postgres ended the statement: the answer is 503, not a bug's 500."""

    async def failed() -> None:
        engine = gateway_database.create_engine(f"{postgres_url}?options=-c%20statement_timeout%3D1ms")
        try:
            async with engine.begin() as connection:
                await connection.execute(text("SELECT pg_sleep(30)"))
        finally:
            await engine.dispose()

    with pytest.raises(UNREACHABLE) as ended:
        asyncio.run(failed())
    assert no_database(ended.value).status == 503


def test_gateway_that_stood_still_says_to_try_again(postgres_url: str) -> None:
    """Postgres ended the idle transaction: the answer is 503, not a bug's 500."""

    async def failed() -> None:
        engine = gateway_database.create_engine(
            f"{postgres_url}?options=-c%20idle_in_transaction_session_timeout%3D1ms"
        )
        try:
            async with engine.begin() as connection:
                pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one()
                wait_until(lambda: not _is_there(postgres_url, pid), "Postgres to end the transaction")
        finally:
            await engine.dispose()

    with pytest.raises(UNREACHABLE) as ended:
        asyncio.run(failed())
    assert no_database(ended.value).status == 503


def _is_there(postgres_url: str, pid: int) -> bool:
    with psycopg.connect(postgres_url) as connection:
        return connection.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is not None
