"""A database whose host is cut off is given up in time, not only after the system's quarter of an hour."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from harness_worker.adapters.sql.engine import Timeouts, make_engine
from harness_worker.databases import SILENCE_S
from harness_worker.testing.postgres import postgres_service
from tests.hosts.network import Host, network

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

SLACK_S = 15.0
PATIENT = Timeouts(connect_s=5, statement_s=200.0, idle_s=200.0, lock_s=5.0, checkout_s=5.0)


@pytest.fixture
def far() -> Generator[tuple[Host, Engine]]:
    """A host, and an engine on another one whose only connection to its Postgres is open."""
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(network("services", "client"))
        except OSError as forbidden:
            pytest.skip(f"no network namespaces here: {forbidden}")
        with hosts["services"].inside():
            server = stack.enter_context(postgres_service(host=hosts["services"].address))
        engine = make_engine(server.url, timeouts=PATIENT, pool_size=1)
        with hosts["client"].inside(), engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        yield hosts["services"], engine
        engine.dispose()


def given_up_after_s(engine: Engine, statement: str) -> float:
    """How long it takes until a statement fails because the server is gone."""
    began = time.monotonic()
    with pytest.raises(OperationalError) as gone, engine.connect() as connection:
        connection.execute(text(statement))
    assert gone.value.connection_invalidated
    return time.monotonic() - began


def test_statement_to_a_host_that_was_cut_off_fails_in_time(far: tuple[Host, Engine]) -> None:
    """The host never acknowledges what is sent."""
    host, engine = far
    host.cut()
    assert given_up_after_s(engine, "SELECT 1") < SILENCE_S + SLACK_S


def test_statement_whose_host_is_cut_off_meanwhile_fails_in_time(far: tuple[Host, Engine]) -> None:
    """The host acknowledged the statement, but never answers it."""
    host, engine = far
    cutting = threading.Timer(2.0, host.cut)
    cutting.start()
    assert given_up_after_s(engine, "SELECT pg_sleep(100)") < SILENCE_S + SLACK_S
    cutting.join()
