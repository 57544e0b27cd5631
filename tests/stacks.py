"""Starting ``harness up`` as a user does, and looking at what it leaves."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from redis import Redis

from harness_worker.entrypoints.cli import main
from harness_worker.entrypoints.stack import StackInfo, running_stack
from harness_worker.testing.waiting import wait_until

APP = "tests.apps.trivial:registry"
ROOT = Path(__file__).parent.parent
HARNESS = (sys.executable, "-m", "harness_worker.entrypoints.cli")
START_TIMEOUT_S = 120.0
UNREAD = "exec 9> >(:); wait $!;"
"""What lets a line of bash write to 9, a pipe whose reader is gone."""


def run_harness(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*HARNESS, *arguments],
        env={**os.environ, **(env or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )


def run_here(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, which need not load it anew: one that starts nothing."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "argv", ["harness", *arguments])
        patch.chdir(ROOT)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        code = main()
    said, told = (_written(stream) for stream in (stdout, stderr))
    return subprocess.CompletedProcess(arguments, code, said, told)


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)  # which flushes it
    return stream.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A running ``harness up``."""

    process: subprocess.Popen[str]
    home: Path
    log: Path

    def info(self) -> StackInfo:
        """What it says once it is ready."""
        return wait_until(self._info, "the stack to be ready", START_TIMEOUT_S)

    def _info(self) -> StackInfo | None:
        assert self.process.poll() is None, self.log.read_text()
        return running_stack(self.home)

    def children(self) -> list[psutil.Process]:
        """Every process below it."""
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def harness_up(home: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Generator[Up]:
    """``harness up`` on ``home``; killed at the end if it still runs."""
    log = home.with_suffix(".log")
    with log.open("a") as sink:
        process = subprocess.Popen(
            [*HARNESS, "up", "--home", str(home), "--port", "0", "--app", APP, "--tools", "1", *arguments],
            env={**os.environ, **(env or {})},
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            text=True,
            start_new_session=True,
        )
    try:
        yield Up(process=process, home=home, log=log)
    finally:
        process.kill()
        process.wait()


def role_pid(home: Path, role: str) -> int:
    """The pid of one process of the stack on ``home``; 0 if no stack runs."""
    stack = running_stack(home)
    return next((process.pid for process in stack.processes if process.role == role), 0) if stack else 0


def await_synced(client: Redis) -> None:
    """Wait until what was written is in Redis' file; it writes behind, by up to two seconds."""
    assert client.waitaof(1, 0, 30_000) == [1, 0]  # pyright: ignore[reportUnknownMemberType]


def none_runs(processes: list[psutil.Process]) -> bool:
    """Whether all of these have ended."""
    return not any(_runs(process) for process in processes)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
