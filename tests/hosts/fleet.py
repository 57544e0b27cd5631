"""A fleet of six hosts: services, gateway, two of coordinators, two of tools."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.apps.chaos.app import ADDRESS_VARIABLE
from tests.chaos.judge import Ended, Roughness, Verdict, judge
from tests.chaos.outside import Outside, service_outside
from tests.hosts.network import Host, network
from tests.stacks import HARNESS, ROOT

APP = "tests.apps.chaos.app:registry"
WORKERS = {"coordinator-1": "coordinator", "coordinator-2": "coordinator", "tools-1": "tools", "tools-2": "tools"}
START_TIMEOUT_S = 90.0
END_TIMEOUT_S = 120.0
FINAL = ("completed", "incomplete", "failed", "cancelled")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The hosts, and a client on the gateway's.

    Args:
        hosts: By name.
        http: A client of the gateway, which serves its own host without keys and no other.
        outside: Counts effects; it is on the host of the services.
        directory: Where the logs are.
    """

    hosts: Mapping[str, Host]
    http: httpx2.Client
    outside: Outside
    directory: Path

    def post(self, script: str, count: int) -> list[str]:
        """Post so many turns with a script; returns their ids."""
        body = {"agent": "stormy", "input": "go", "metadata": {"script": script}}
        return [self._asked("POST", "/v1/turns", json=body)["id"] for _ in range(count)]

    def turn(self, turn_id: str) -> Json:
        """A turn as it is now, with its messages."""
        return self._asked("GET", f"/v1/turns/{turn_id}", params={"include": "messages"})

    def ended(self, turn_ids: Sequence[str]) -> list[Ended]:
        """The turns, once all of them have ended."""

        def over() -> list[Json] | None:
            turns = [self.turn(turn_id) for turn_id in turn_ids]
            return turns if all(turn["status"] in FINAL for turn in turns) else None

        turns = wait_until(over, "the turns to end", END_TIMEOUT_S, interval_s=0.2)
        return [Ended(turn=turn, events=self._events(turn["id"])) for turn in turns]

    def log(self, host: str) -> str:
        """The log of a host's worker."""
        return (self.directory / f"{host}.log").read_text(errors="replace")

    def judged(self, ended: Sequence[Ended]) -> Verdict:
        """The judge's verdict on turns as they were at their end and as they are now."""
        later = [Ended(turn=self.turn(each.turn["id"]), events=self._events(each.turn["id"])) for each in ended]
        log = "\n".join(map(self.log, WORKERS))
        rough = Roughness(posted=len(ended), kills=0, faults=1, log=log, left_behind=())
        return judge(ended, later, self.outside, rough)

    def _events(self, turn_id: str) -> list[Json]:
        return self._asked("GET", f"/v1/turns/{turn_id}/events", params={"limit": 1_000})["data"]

    def _asked(self, method: str, path: str, **options: Any) -> Json:  # noqa: ANN401 - httpx2's own
        with self.hosts["gateway"].inside():
            answer = self.http.request(method, path, **options)
        return answer.raise_for_status().json()


@contextmanager
def open_fleet(directory: Path) -> Generator[Fleet]:
    """All six hosts, ready for turns; everything is removed at the end.

    Raises:
        OSError: Network namespaces are not possible here.
    """
    with ExitStack() as stack:
        hosts = stack.enter_context(network("services", "gateway", *WORKERS))
        services = hosts["services"]
        with services.inside():
            outside = stack.enter_context(service_outside(services.address))
            redis_url = stack.enter_context(valkey_service(host=services.address))
            database_url = stack.enter_context(postgres_service(host=services.address)).create_database()
            upgrade(database_url)
        env = {
            "HARNESS_REDIS_URL": redis_url,
            "HARNESS_DATABASE_URL": database_url,
            "HARNESS_DEV_KEYLESS": "1",
            ADDRESS_VARIABLE: outside.address,
        }
        ready = [_start_worker(stack, hosts[name], role, env, directory) for name, role in WORKERS.items()]
        http = _start_gateway(stack, hosts["gateway"], env, directory)
        for is_ready in ready:
            wait_until(is_ready, "a worker to be ready", START_TIMEOUT_S)
        yield Fleet(hosts=hosts, http=http, outside=outside, directory=directory)


def _start_worker(
    stack: ExitStack, host: Host, role: str, env: Mapping[str, str], directory: Path
) -> Callable[[], bool]:
    ready = directory / f"{host.name}.ready"
    options = ("--role", role, "--app", APP, "--concurrency", "4", "--ready-file", str(ready))
    stack.enter_context(_process(host, ("worker", *options), env, directory))
    return ready.exists


def _start_gateway(stack: ExitStack, host: Host, env: Mapping[str, str], directory: Path) -> httpx2.Client:
    stack.enter_context(_process(host, ("gateway", "--port", "8700"), env, directory))
    client = stack.enter_context(httpx2.Client(base_url="http://127.0.0.1:8700", timeout=30, trust_env=False))
    with host.inside():
        wait_until(lambda: _answers(client), "the gateway to answer", START_TIMEOUT_S)
    return client


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx2.TransportError:
        return False


@contextmanager
def _process(host: Host, command: Sequence[str], env: Mapping[str, str], directory: Path) -> Generator[None]:
    with host.inside(), (directory / f"{host.name}.log").open("wb") as sink:
        process = subprocess.Popen(
            host.command(*HARNESS, *command),
            env={**os.environ, **env},
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
