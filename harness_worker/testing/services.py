"""The servers that tests run against: given ones, or real ones started from wheels.

Every service is a context manager that leaves neither a process nor a directory behind. If the test process is killed,
its servers die with it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.adapters.embedded.valkey import answers, find_server, server_command, server_url
from harness_worker.testing.postgres import PostgresServer, postgres_service
from harness_worker.testing.processes import running_server
from harness_worker.testing.temporary import server_directory

REDIS_URL_VARIABLE = "HARNESS_TEST_REDIS_URL"
DATABASE_URL_VARIABLE = "HARNESS_TEST_DATABASE_URL"


@contextmanager
def valkey_service(port: int | None = None, *, host: str = LOOPBACK) -> Generator[str]:
    """Run a new Valkey without persistence, and yield its URL.

    Args:
        port: The port it listens on; ``None``: a free one.
        host: The address it listens on. On any but the loopback address it accepts every client that reaches it.
    """
    with server_directory("valkey") as directory:
        port = port or free_port()
        command = server_command(
            find_server(bundled_first=True), port=port, host=host, directory=directory, durable=False
        )
        url = server_url(port, host)
        log = directory / "valkey.log"
        with running_server(guarded(command), log=log, is_ready=lambda: answers(url), stop=signal.SIGKILL):
            yield url


@contextmanager
def given_or_own_valkey() -> Generator[str]:
    """Yield the URL of the Redis in ``HARNESS_TEST_REDIS_URL``, or else of a new Valkey."""
    given = os.environ.get(REDIS_URL_VARIABLE)  # noqa: TID251 - the variable is for tests, and not a setting
    if given:
        yield given
        return
    with valkey_service() as url:
        yield url


@contextmanager
def given_or_own_postgres() -> Generator[PostgresServer]:
    """Yield the Postgres in ``HARNESS_TEST_DATABASE_URL`` or a new one; its user must be able to create databases."""
    given = os.environ.get(DATABASE_URL_VARIABLE)  # noqa: TID251 - the variable is for tests, and not a setting
    if given:
        yield PostgresServer(url=given)
        return
    with postgres_service() as server:
        yield server
