"""Additional workers for a stack, and the stack's own processes."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE
from tests.e2e.outsider import Outsider
from tests.stacks import HARNESS, ROOT, role_pid

APP = "tests.apps.e2e.app:registry"
START_TIMEOUT_S = 60.0
COORDINATORS = 8
"""How many threads the coordinator of the suite's stack has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A ``harness worker`` that runs in the foreground, outside of the stack."""

    process: subprocess.Popen[bytes]
    ready: Path
    log: Path

    def await_ready(self) -> None:
        """Wait until it takes messages."""

        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.ready.exists()

        wait_until(is_ready, "the worker to be ready", START_TIMEOUT_S)

    def stop(self) -> int:
        """Tell it to stop, and wait for its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def worker(outsider: Outsider, name: str, role: str, *options: str) -> Generator[Worker]:
    """Another worker on the stack's servers; it is stopped at the end."""
    stack, place = outsider.stack, outsider.directory / name
    log, ready = place.with_suffix(".log"), place.with_suffix(".ready")
    joined = ("--home", str(stack.home), "--ready-file", str(ready))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*HARNESS, "worker", "--role", role, "--app", APP, *joined, *options],
            env={**os.environ, DIRECTORY_VARIABLE: str(outsider.directory)},
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield Worker(process=process, ready=ready, log=log)
    finally:
        process.kill()
        process.wait()


@contextmanager
def busy_coordinator(outsider: Outsider) -> Generator[None]:
    """Meanwhile no thread of the stack's coordinator is free, so wake-ups of other turns wait in their queues."""
    word = uuid.uuid4().hex
    ids = [outsider.hold(word) for _ in range(COORDINATORS)]
    try:
        yield
    finally:
        outsider.give(word)
    for turn_id in ids:
        outsider.end(turn_id)


def kill(outsider: Outsider, role: str) -> int:
    """Kill the stack's process of that role; returns its pid."""
    pid = role_pid(outsider.stack.home, role)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid), f"{role} to be dead and gone, with all its threads")
    return pid


def stop(outsider: Outsider, role: str) -> int:
    """Tell the stack's process of that role to stop; returns its pid."""
    pid = role_pid(outsider.stack.home, role)
    os.kill(pid, signal.SIGTERM)
    return pid


def await_back(outsider: Outsider, role: str, pid: int) -> None:
    """Wait until another process than ``pid`` has that role and takes messages."""
    home = outsider.stack.home
    wait_until(lambda: role_pid(home, role) not in (0, pid), f"{role} to be started again", START_TIMEOUT_S)
    wait_until((home / "run" / f"{role}.ready").exists, f"{role} to consume again", START_TIMEOUT_S)


def tool_children(outsider: Outsider) -> list[psutil.Process]:
    """The pool processes of the stack's tool worker; none while it is away."""
    try:
        return psutil.Process(role_pid(outsider.stack.home, "tools")).children()
    except (psutil.NoSuchProcess, ValueError):
        return []
