"""Every service's exact command and environment, run outside containers, against a real Valkey and a real Postgres.

No container engine is needed. Two things differ from what Compose runs: Postgres is the tests' own server instead of
the official image, and the addresses and paths that exist in containers alone are exchanged for some of this machine.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.adapters.embedded.ports import free_port
from harness_worker.adapters.embedded.valkey import answers, find_server
from harness_worker.demo.conversations import CONVERSATIONS
from harness_worker.testing.postgres import PostgresServer
from harness_worker.testing.processes import running_server
from harness_worker.testing.waiting import wait_until
from tests.compose_file import entrypoint, image_environment, seconds, services
from tests.stacks import HARNESS, ROOT

SECRETS: Final = {
    "POSTGRES_PASSWORD": "p0stgres5ecret",
    "VALKEY_PASSWORD": "valkey5ecret",
    "HARNESS_FLOWER_AUTH": "ops:fl0wer5ecret",
    "HARNESS_DEV_KEYLESS": "1",
}
LONG_RUNNING: Final = ("gateway", "coordinator", "tools", "flower")
START_TIMEOUT_S: Final = 60.0

pytestmark = pytest.mark.xdist_group("compose")


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """What this machine has in place of what exists in containers alone.

    Args:
        directory: For what containers store.
        database_url: In place of the database.
        ports: Ports of this machine, by the container's.
    """

    directory: Path
    database_url: str
    ports: Mapping[str, str] = field(
        default_factory=lambda: {port: str(free_port()) for port in ("6379", "8700", "5555")}
    )

    def put(self, text: str, service: str) -> str:
        """A text of the compose file, with this machine's paths and addresses."""
        database = f"harness:{SECRETS['POSTGRES_PASSWORD']}@postgres:5432/harness"
        given = urlsplit(self.database_url)
        places = {
            database: f"{given.netloc}{given.path}",
            "valkey:6379": f"127.0.0.1:{self.ports['6379']}",
            "/tmp/": f"{self.directory}/{service}-",  # noqa: S108 - a mount in a container
            "/data": f"{self.directory}/data",
            **{f":{port}": f":{mine}" for port, mine in self.ports.items()},
        }
        for place, mine in places.items():
            text = text.replace(place, mine)
        return self.ports.get(text, text)

    def command(self, service: str) -> list[str]:
        """The command of the service's container."""
        given: list[str] = SERVICES[service]["command"]
        program = [] if "build" not in SERVICES[service] else list(HARNESS)
        return [*program, *(self.put(part, service) for part in given)]

    def environment(self, service: str) -> dict[str, str]:
        """The variables of the service's container: the image's and its own, without those of the tests."""
        given = {**image_environment(), **SERVICES[service]["environment"]}
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        values = {name: self.put(value, service) for name, value in given.items() if value is not None}
        return {**values, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self.directory)}

    def is_healthy(self, service: str) -> bool:
        """Whether the service passes its own health check, now and in time."""
        kind, *test = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        command = [self.put(part, service) for part in test]
        try:
            subprocess.run(command, env=self.environment(service), capture_output=True, timeout=15, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True


SERVICES: Final = services(SECRETS)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Generator[Here]:
    """Directories, ports, an empty database, and the programs under the names that they have in containers."""
    directory = tmp_path_factory.mktemp("compose")
    (directory / "data").mkdir()
    (directory / "bin").mkdir()
    url = postgres_server.create_database()
    made = Here(directory=directory, database_url=url)
    program(made, "python", f'exec {sys.executable} "$@"')
    options = f"--bind 127.0.0.1 --port {made.ports['6379']} --dir {directory}"
    program(made, "valkey-server", f'exec {find_server(bundled_first=True)} "$@" {options}')
    yield made
    postgres_server.drop_database(url)


def program(here: Here, name: str, script: str) -> None:
    """A program on the services' path."""
    file = here.directory / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def redis_url(here: Here, password: str) -> str:
    """Valkey's address."""
    return f"redis://:{password}@127.0.0.1:{here.ports['6379']}/0"


@pytest.fixture(scope="module")
def valkey(here: Here) -> Generator[str]:
    """A Valkey started with the compose file's command."""
    url = redis_url(here, SECRETS["VALKEY_PASSWORD"])
    log = here.directory / "valkey.log"
    command = ["env", "-i", *(f"{name}={value}" for name, value in here.environment("valkey").items())]
    with running_server(
        guarded([*command, *here.command("valkey")]), log=log, is_ready=lambda: answers(url), stop=signal.SIGTERM
    ):
        yield url


def migrated(here: Here) -> str:
    """The output of the migration."""
    ran = subprocess.run(
        here.command("migrate"),
        env=here.environment("migrate"),
        cwd=here.directory,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def fleet(here: Here, valkey: str) -> Generator[Mapping[str, subprocess.Popen[bytes]]]:
    """All long-running services of ours, healthy by their own checks; each must drain at the end."""
    assert valkey
    migrated(here)
    with ExitStack() as started:
        processes = {name: started.enter_context(running(here, name)) for name in LONG_RUNNING}
        for name, process in processes.items():
            wait_until(lambda name=name, process=process: healthy(here, name, process), f"{name}", START_TIMEOUT_S)
        yield processes
        check_drain(here, processes)


def check_drain(here: Here, processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """The signal that Compose sends ends the service without error, within the time that Compose gives it."""
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for name, process in processes.items():
        log = here.directory / f"{name}.log"
        assert process.wait(seconds(SERVICES[name]["stop_grace_period"])) == 0, log.read_text()
        assert "Traceback" not in log.read_text()


def healthy(here: Here, name: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether a service is healthy; fails with its log if it has ended."""
    assert process.poll() is None, (here.directory / f"{name}.log").read_text()
    return here.is_healthy(name)


def running(here: Here, name: str) -> subprocess.Popen[bytes]:
    """A service's process; it ends with the tests, and is killed at the end of its context."""
    with (here.directory / f"{name}.log").open("wb") as log:
        return Service(
            guarded(here.command(name)),
            env=here.environment(name),
            cwd=here.directory,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


class Service(subprocess.Popen[bytes]):
    """A process that is killed at the end of its context."""

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()


def test_image_program_is_the_command_line() -> None:
    """The image runs ``harness``, the program that these tests run."""
    assert entrypoint() == ["harness"]


def test_valkey_asks_for_the_password(here: Here, valkey: str) -> None:
    """Nobody can read this Valkey without the password, which is not among its arguments."""
    assert answers(valkey)
    assert not answers(redis_url(here, "guess"))
    assert not answers(valkey.replace(f":{SECRETS['VALKEY_PASSWORD']}@", ""))
    assert SECRETS["VALKEY_PASSWORD"] not in " ".join(here.command("valkey"))


@pytest.mark.usefixtures("fleet")
def test_migration_may_run_again(here: Here) -> None:
    """Another ``up`` of the same version migrates again, which changes nothing."""
    assert "already" in migrated(here)


@pytest.mark.usefixtures("fleet")
def test_gateway_answers_and_drives_a_turn(here: Here) -> None:
    """A turn posted to the gateway service is driven by the services of coordinator and tools."""
    gateway = f"http://127.0.0.1:{here.ports['8700']}"
    assert httpx2.get(f"{gateway}/healthz", trust_env=False, timeout=30).status_code == 200
    asked = CONVERSATIONS[0]
    body = {"agent": "support", "input": asked.question, "metadata": {"script": asked.script}}
    options: dict[str, Any] = {"headers": {"Prefer": "wait=30"}, "timeout": 40, "trust_env": False}
    turn = httpx2.post(f"{gateway}/v1/turns", json=body, **options).json()
    assert turn["status"] == "completed", turn
    assert {call["outcome"] for call in turn["calls"]} == {"ToolExecutionResult"}


@pytest.mark.usefixtures("fleet")
def test_gateway_serves_neighbours_with_a_key_alone(here: Here) -> None:
    """Requests from outside of its container, such as those through a published port, need a key.

    A command in the gateway's container makes one.
    """
    port = here.ports["8700"]
    create = [*HARNESS, "keys", "create", "--tenant", "acme", "--name", "billing"]
    made = subprocess.run(
        create, env=here.environment("gateway"), cwd=here.directory, capture_output=True, text=True, check=True
    )
    key = {"Authorization": f"Bearer {made.stdout.strip()}"}
    families = [address for addresses in psutil.net_if_addrs().values() for address in addresses]
    others = [a.address for a in families if a.family is socket.AF_INET and not a.address.startswith("127.")]
    for address in others:
        assert httpx2.get(f"http://{address}:{port}/v1/turns", trust_env=False, timeout=30).status_code == 401
        mine = httpx2.get(f"http://{address}:{port}/v1/turns", headers=key, trust_env=False, timeout=30)
        assert mine.json() == {"data": [], "next": None}
        assert httpx2.get(f"http://{address}:{port}/healthz", trust_env=False, timeout=30).status_code == 200


@pytest.mark.usefixtures("fleet")
def test_flower_sees_both_workers_and_no_password(here: Here) -> None:
    """Flower asks for the file's password, lists the workers, and shows no other password."""
    url = f"http://127.0.0.1:{here.ports['5555']}"
    assert httpx2.get(f"{url}/api/workers", trust_env=False, timeout=30).status_code == 401
    user, _, password = SECRETS["HARNESS_FLOWER_AUTH"].partition(":")

    def page(path: str) -> str:
        return httpx2.get(f"{url}{path}", auth=(user, password), timeout=20, trust_env=False).text

    wait_until(lambda: '"coordinator@' in page("/api/workers?refresh=1"), "the coordinator in Flower", 20)
    wait_until(lambda: '"tools@' in page("/api/workers?refresh=1"), "the tool worker in Flower", 20)
    shown = "".join(page(path) for path in ("/", "/api/workers", "/broker", "/api/tasks"))
    assert [secret for secret in SECRETS.values() if len(secret) > 4 and secret.split(":")[-1] in shown] == []
