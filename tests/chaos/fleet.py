"""A stack with more workers beside it, so that the others go on while one is stopped; finds all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness_worker.entrypoints.stack import StackInfo, open_stack, running_stack
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, ROOT

APP = "tests.apps.chaos.app:registry"
ROLES = ("coordinator", "tools")
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A stack and the workers beside it."""

    stack: StackInfo
    keepers: Sequence[Keeper]

    def workers(self, role: str) -> list[psutil.Process]:
        """The living workers of a role, in the stack and beside it; of a tool worker, the parent of its pool."""
        stack = running_stack(self.stack.home)
        pids = [each.pid for each in stack.processes if each.role == role] if stack else []
        pids += [keeper.pid for keeper in self.keepers if keeper.role == role]
        return [process for pid in pids if (process := _living(pid)) is not None]

    def at_work(self, role: str) -> list[psutil.Process]:
        """The workers of a role that consume; killing those that are still starting would only keep them from it."""
        ready = {keeper.pid for keeper in self.keepers if keeper.role == role and keeper.is_ready}
        if (self.stack.home / "run" / f"{role}.ready").exists():
            stack = running_stack(self.stack.home)
            ready |= {each.pid for each in stack.processes if each.role == role} if stack else set()
        return [worker for worker in self.workers(role) if worker.pid in ready]

    def children(self) -> list[psutil.Process]:
        """The processes that run tools."""
        return [child for worker in self.at_work("tools") for child in _children_of(worker)]

    def redis(self) -> list[psutil.Process]:
        """The stack's Redis, if the stack started one."""
        return self.workers("redis")

    def log(self) -> str:
        """The logs of all of them."""
        logs = [self.stack.home / "logs" / "up.log", *(keeper.log for keeper in self.keepers)]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())


class Keeper(threading.Thread):
    """Keeps one more worker running beside a stack, and starts it again whenever it dies.

    Args:
        stack: The stack that the worker joins.
        role: The worker's role.
        env: Environment variables in addition to this process's.
    """

    def __init__(self, stack: StackInfo, role: str, env: Mapping[str, str]) -> None:
        super().__init__(name=f"keeper-{role}", daemon=True)
        self.role = role
        self.log = stack.home / "logs" / f"beside-{role}.log"
        self._ready = stack.home / "run" / f"beside-{role}.ready"
        self._env = {**os.environ, **env}
        self._options = ("--role", role, "--home", str(stack.home), "--app", APP, "--concurrency", "3")
        self._over = threading.Event()
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The id of the worker's current process."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the current process consumes."""
        return self._ready.exists()

    def run(self) -> None:
        """Start the worker again whenever it has ended."""
        while not self._over.wait(0.2):
            if self._process.poll() is not None:
                self._process = self._start()

    def await_ready(self) -> None:
        """Wait until the worker consumes."""
        wait_until(self._ready.exists, f"the {self.role} beside the stack to be ready", START_TIMEOUT_S)

    def stop(self) -> None:
        """End the worker, and do not start it again."""
        self._over.set()
        self.join()
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self._ready.unlink(missing_ok=True)
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                [*HARNESS, "worker", *self._options, "--ready-file", str(self._ready)],
                env=self._env,
                cwd=ROOT,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )


@contextmanager
def open_fleet(home: Path, env: Mapping[str, str], *, beside: Sequence[str] = ROLES) -> Generator[Fleet]:
    """Run a stack in ``home`` with one more worker of each role in ``beside``; all of it is stopped at the end."""
    with ExitStack() as stacked:
        stack = stacked.enter_context(open_stack(home=home, app=APP, coordinators=4, tools=4, env=env))
        keepers = [Keeper(stack, role, env) for role in beside]
        for keeper in keepers:
            keeper.start()
            stacked.callback(keeper.stop)
        for keeper in keepers:
            keeper.await_ready()
        yield Fleet(stack=stack, keepers=keepers)


def _living(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []
