"""Fixtures for every test: real servers, and fresh migrated databases on both kinds of SQL."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from fsspec import core  # pyright: ignore[reportMissingTypeStubs] - fsspec has no types
from hypothesis import HealthCheck, settings

from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.entrypoints.loading import loading
from harness_worker.testing.messages_stub import MessagesStub, messages_stub
from harness_worker.testing.postgres import PostgresServer, database_name
from harness_worker.testing.services import given_or_own_postgres, given_or_own_valkey
from tests.contract.store_world import World, world_of
from tests.receiver import Receiver, receiver
from tests.relay import Relay, relay
from tests.s3 import S3, s3_service

os.environ.pop("ANTHROPIC_API_KEY", None)  # no test may cost money
for name in [name for name in os.environ if name.startswith("OTEL_")]:
    del os.environ[name]  # and none may send traces of its turns
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]  # the servers that tests ask are on this machine

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of the hundreds of processes compiles the project
sys.dont_write_bytecode = False

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")  # a slow machine is not an error


@pytest.fixture(scope="session", autouse=True)
def _curl(tmp_path_factory: pytest.TempPathFactory) -> None:  # pyright: ignore[reportUnusedFunction] - pytest calls it
    """Put a substitute on PATH if there is no curl, so that the documents' examples run with Python, git and make."""
    if shutil.which("curl") is not None:
        return
    curl = tmp_path_factory.mktemp("bin") / "curl"
    curl.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} {quote(str(Path(__file__).with_name("curl.py")))} "$@"\n')
    curl.chmod(0o755)
    os.environ["PATH"] += f"{os.pathsep}{curl.parent}"


@pytest.fixture(scope="session")
def valkey_url() -> Generator[str]:
    """A real Valkey for each session (each worker process under xdist); it is never flushed, so use unique keys."""
    with given_or_own_valkey() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    """A real Postgres, one for each session."""
    with given_or_own_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Generator[S3]:
    """A local S3, one for each session."""
    with s3_service() as server:
        yield server


@pytest.fixture
def stub() -> Generator[MessagesStub]:
    """A provider whose replies the test scripts."""
    with messages_stub() as running:
        yield running


@pytest.fixture
def other() -> Generator[Receiver]:
    """A receiver of webhooks."""
    with receiver() as found:
        yield found


@pytest.fixture
def no_threads() -> Generator[None]:
    """Make the system refuse new threads to this process."""
    before = threading.stack_size(1 << 47)  # larger than the address space
    yield
    threading.stack_size(before)


@pytest.fixture
def reach_s3(monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[S3], None]]:
    """Points this process at an S3 by environment variables, without the connections to others that fsspec caches."""
    untyped: Any = core
    files = untyped.get_filesystem_class("s3")

    def reach(s3: S3) -> None:
        files.clear_instance_cache()
        for name, value in s3.env.items():
            monkeypatch.setenv(name, value)

    yield reach
    files.clear_instance_cache()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> Generator[str]:
    """The name of a migrated database that tests copy."""
    url = postgres_server.create_database()
    upgrade(url)
    yield database_name(url)
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that tests copy."""
    file = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, postgres_template: str) -> Generator[str]:
    """A fresh migrated Postgres database."""
    url = postgres_server.create_database(template=postgres_template)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def line(postgres_url: str) -> Generator[Relay]:
    """A relay between the test and its Postgres database."""
    with relay(postgres_url) as server:
        yield server


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A fresh migrated SQLite database."""
    file = tmp_path / "harness.db"
    shutil.copy(sqlite_template, file)
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database; the test runs once for each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def world(database_url: str) -> Generator[World]:
    """A store on a fresh database; the test runs once for each kind of database."""
    with world_of(database_url) as world:
        yield world


@pytest.fixture
def postgres_world(postgres_url: str) -> Generator[World]:
    """A store on Postgres, for tests that need row locks."""
    with world_of(postgres_url) as world:
        yield world


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Load the tests, thousands of objects that live as long as this process, without garbage collection."""
    with loading():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a module that starts processes in one test process, so that they are started only once.

    Also mark as acceptance tests, for `make acceptance`, runs on a second kind of database that show little more.
    """
    for item in items:
        if _is_for_later(item):
            item.add_marker(pytest.mark.acceptance)
        starts_processes = {"e2e", "integration"} & set(item.path.parts)
        if starts_processes and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _is_for_later(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("one_database")
    given: Any = getattr(item, "callspec", None)
    if marker is None or given is None:
        return False
    return bool(
        {"sqlite", "postgres"} - {*marker.args} & {value for value in given.params.values() if isinstance(value, str)}
    )


def pytest_configure() -> None:
    """Make SIGINT reach the tests, which interrupt processes, even if this run was started in the background."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
