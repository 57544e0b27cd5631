"""One running stack a database, and one with another broker, for the whole suite."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from harness_worker.entrypoints.stack import open_stack
from harness_worker.testing.postgres import PostgresServer
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.outsider import Outsider
from tests.e2e.workers import COORDINATORS
from tests.rabbitmq import RabbitMQ, rabbitmq_service
from tests.stacks import ROOT

APP = "tests.apps.e2e.app:registry"
KINDS = [
    *(pytest.param(kind, marks=pytest.mark.xdist_group(f"e2e-{kind}")) for kind in ("sqlite", "postgres")),
    pytest.param("rabbitmq", marks=(pytest.mark.xdist_group("e2e-rabbitmq"), pytest.mark.acceptance)),
]


@pytest.fixture(scope="session", params=KINDS)
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database, each in turn; ``rabbitmq`` stands for Postgres with RabbitMQ as the broker."""
    return request.param


@pytest.fixture(scope="session")
def rabbitmq() -> Generator[RabbitMQ]:
    """A real RabbitMQ."""
    with rabbitmq_service() as server:
        yield server


@pytest.fixture(scope="session")
def new_database(database: str, request: pytest.FixtureRequest) -> Callable[[], dict[str, str]]:
    """Makes an empty database and returns the variables that name it and its broker, without those at defaults."""
    if database == "sqlite":
        return dict
    server: PostgresServer = request.getfixturevalue("postgres_server")
    if database == "postgres":
        return lambda: {"HARNESS_DATABASE_URL": server.create_database()}
    broker: RabbitMQ = request.getfixturevalue("rabbitmq")
    return lambda: {"HARNESS_DATABASE_URL": server.create_database(), "HARNESS_BROKER_URL": broker.new_broker()}


@pytest.fixture(scope="session")
def outsider(
    database: str, new_database: Callable[[], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Outsider]:
    """A client of a running stack."""
    directory = tmp_path_factory.mktemp(f"e2e-{database}")
    scripts_file(directory).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv(DIRECTORY_VARIABLE, str(directory))
        env = {**new_database(), DIRECTORY_VARIABLE: str(directory)}
        with open_stack(home=directory / "home", app=APP, coordinators=COORDINATORS, tools=4, env=env) as stack:
            client = Outsider(stack, directory)
            yield client
            client.http.close()
        _check_log((directory / "home" / "logs" / "up.log").read_text())


def _check_log(log: str) -> None:
    """After the tests, the stack's log must hold no traceback, whatever was done to the stack."""
    for bug in ("InvariantError", "Error in timer", "raised unexpected", " failed\nTraceback"):
        assert bug not in log, log[max(0, log.index(bug) - 500) : log.index(bug) + 3_000]
