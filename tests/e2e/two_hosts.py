"""Workers as if on several hosts: each host has its own working directory and home, and they share no files."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx2

from harness_worker.adapters.embedded.ports import LOOPBACK, free_port
from harness_worker.adapters.sql.migrate import upgrade
from harness_worker.entrypoints.stack import StackInfo
from harness_worker.testing.postgres import postgres_service
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Outsider
from tests.s3 import s3_service
from tests.stacks import HARNESS, ROOT

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 40.0


@contextmanager
def open_hosts(directory: Path, *, app: str, queues: Mapping[str, str]) -> Generator[tuple[Outsider, Sequence[Path]]]:
    """A coordinator and a tool worker on each host, with one gateway; they share Postgres, Valkey and an S3 bucket.

    Args:
        directory: Where the hosts' directories are made.
        app: The app to serve.
        queues: The hosts by name, each with the queues that its tool worker serves.

    Yields:
        A client of the gateway, and the working directories of the hosts.
    """
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_service())
        redis_url = stack.enter_context(valkey_service())
        database_url = stack.enter_context(postgres_service()).create_database()
        upgrade(database_url)
        env = {
            **s3.env,
            "HARNESS_ARTIFACT_URL": f"{s3.new_bucket()}/artifacts",
            "HARNESS_DATABASE_URL": database_url,
            "HARNESS_REDIS_URL": redis_url,
            "HARNESS_LEASE_TTL_S": "30",  # a machine under load must not add events of its own
            "HARNESS_DEV_KEYLESS": "1",
            "PYTHONPATH": str(ROOT),
        }
        hosts = [_host(stack, directory / name, app, served, env) for name, served in queues.items()]
        port = free_port()
        stack.enter_context(_process(directory / "gateway", ("gateway", "--port", str(port)), env))
        info = StackInfo(
            gateway_url=f"http://{LOOPBACK}:{port}",
            redis_url=redis_url,
            database_url=database_url,
            pid=os.getpid(),
            home=directory,
            processes=(),
        )
        outsider = Outsider(info, directory)
        stack.callback(outsider.http.close)
        _await_ready(hosts, outsider)
        yield outsider, hosts


def _host(stack: ExitStack, directory: Path, app: str, queues: str, env: Mapping[str, str]) -> Path:
    shared = ("--app", app, "--home", "home", "--concurrency", "2")
    for role, narrowed in {"coordinator": (), "tools": ("--queues", queues)}.items():
        command = ("worker", "--role", role, *shared, "--ready-file", f"{role}.ready", *narrowed)
        stack.enter_context(_process(directory, command, env, log=f"{role}.log"))
    return directory


@contextmanager
def _process(directory: Path, command: Sequence[str], env: Mapping[str, str], log: str = "log") -> Generator[None]:
    directory.mkdir(exist_ok=True)
    with (directory / log).open("wb") as sink:
        process = subprocess.Popen(
            [*HARNESS, *command],
            env={**os.environ, **env},
            cwd=directory,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(hosts: Sequence[Path], outsider: Outsider) -> None:
    for host in hosts:
        for role in ("coordinator", "tools"):
            wait_until((host / f"{role}.ready").exists, f"{role} of {host.name} to be ready", START_TIMEOUT_S)
    wait_until(lambda: _answers(outsider.http), "the gateway to answer", START_TIMEOUT_S)


def _answers(http: httpx2.Client) -> bool:
    try:
        return http.get("/readyz").is_success
    except httpx2.TransportError:
        return False
