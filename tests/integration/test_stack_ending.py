"""How a stack ends, by a signal, by Ctrl-C or by a kill: nothing may be left that runs or blocks the next start."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from redis import Redis

from harness_worker.entrypoints.stack import running_stack
from harness_worker.testing.waiting import wait_until
from tests.stacks import HARNESS, await_synced, harness_up, none_runs

SLOW_TO_FORK = """
import os, time
from harness_worker import Registry

registry = Registry()
worker = os.getpid()

def forked():
    open(f"{os.getpid()}.forked", "w").close()
    while os.getppid() == worker:
        time.sleep(0.01)

os.register_at_fork(after_in_child=forked)
"""
"""An application whose worker's processes begin only after the worker has died."""

NEVER_READY = """
import sys, threading
from harness_worker import Registry

registry = Registry()
registry.agent("clerk", model="scripted:clerk.jsonl")
if "tools" in sys.argv:
    threading.Event().wait()
"""
"""An application that its tool worker never has loaded."""


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_leaves_no_process(tmp_path: Path, sig: signal.Signals) -> None:
    """SIGTERM, and Ctrl-C for all processes of the terminal, drain the stack, which exits with 0."""
    with harness_up(tmp_path / "home") as up:
        up.info()
        children = up.children()
        assert len(children) >= 4
        os.killpg(up.process.pid, sig)
        assert up.process.wait(60) == 0, up.log.read_text()
    assert none_runs(children)
    assert running_stack(tmp_path / "home") is None
    assert not list((tmp_path / "home" / "run").glob("*.pid"))
    assert "Traceback" not in up.log.read_text()
    assert "killed" not in up.log.read_text()


@pytest.mark.parametrize(("sig", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_asked_to_stop_while_starting_leaves_no_process(tmp_path: Path, sig: signal.Signals, code: int) -> None:
    """A stack that is not ready yet stops too; after Ctrl-C its exit code shows that it never was ready."""
    (tmp_path / "never_ready.py").write_text(NEVER_READY)
    env = {"PYTHONPATH": str(tmp_path)}
    with harness_up(tmp_path / "home", "--app", "never_ready:registry", env=env) as up:
        pid_file = tmp_path / "home" / "run" / "tools.pid"
        wait_until(pid_file.exists, "the tool worker to be started", 60)
        children = up.children()
        up.process.send_signal(sig)
        assert up.process.wait(60) == code, up.log.read_text()
    assert none_runs(children)
    assert not list((tmp_path / "home" / "run").glob("*.pid"))
    assert "Traceback" not in up.log.read_text()


def test_killed_stack_takes_its_processes_along_and_starts_again(tmp_path: Path) -> None:
    """After SIGKILL nothing keeps running, and a torn end of Redis' file does not block the next start."""
    home = tmp_path / "home"
    with harness_up(home) as up:
        with Redis.from_url(up.info().redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
            client.set("kept", "yes")  # pyright: ignore[reportUnknownMemberType]
            client.set("cut", "x" * 100)  # pyright: ignore[reportUnknownMemberType]
            await_synced(client)
        children = up.children()
        up.process.kill()
        up.process.wait()
        wait_until(lambda: none_runs(children), "the children to die")
    journal = next((home / "valkey" / "appendonlydir").glob("*.incr.aof"))
    os.truncate(journal, journal.stat().st_size - 20)
    with harness_up(home) as up, Redis.from_url(up.info().redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
        assert client.get("kept") == b"yes"  # pyright: ignore[reportUnknownMemberType]


def test_unreadable_redis_data_does_not_block_the_start(tmp_path: Path) -> None:
    """Redis may lose everything, so data that it cannot read is set aside, and the log says so."""
    home = tmp_path / "home"
    data = home / "valkey" / "appendonlydir"
    data.mkdir(parents=True)
    (data / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    (data / "appendonly.aof.1.base.rdb").write_bytes(b"REDIS9999 of another age")
    with harness_up(home, "--tools", "0") as up:
        assert [process.role for process in up.info().processes] == ["redis", "gateway", "coordinator"]
    assert "valkey.unreadable" in up.log.read_text()


def test_worker_killed_while_its_pool_starts_leaves_none(tmp_path: Path, sqlite_url: str, valkey_url: str) -> None:
    """If its worker dies before a pool process could ask to be killed with it, the process ends by itself."""
    (tmp_path / "slow.py").write_text(SLOW_TO_FORK)
    command = [*HARNESS, "worker", "--role", "tools", "--app", "slow:registry", "--concurrency", "2"]
    env = {**os.environ, "HARNESS_REDIS_URL": valkey_url, "HARNESS_DATABASE_URL": sqlite_url}
    with subprocess.Popen(command, cwd=tmp_path, env=env, start_new_session=True) as worker:
        try:
            forked = wait_until(lambda: _two(tmp_path.glob("*.forked")), "the worker's pool to start", 60)
            children = [psutil.Process(int(file.stem)) for file in forked]
        finally:
            worker.kill()
    try:
        wait_until(lambda: none_runs(children), "the processes of its pool to end")
    finally:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def _two(files: Iterable[Path]) -> list[Path] | None:
    found = list(files)
    return found if len(found) == 2 else None
