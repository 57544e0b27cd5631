"""How a stack ends: asked, pressed, or killed; nothing may be left, nor block the next start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from redis import Redis

from harness_worker.entrypoints.stack import running_stack
from harness_worker.testing.waiting import wait_until
from tests.stacks import await_synced, harness_up, none_runs


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_leaves_no_process(tmp_path: Path, sig: signal.Signals) -> None:
    """SIGTERM, and Ctrl-C to the whole terminal's group, drain and exit 0."""
    with harness_up(tmp_path / "home") as up:
        up.info()
        children = up.children()
        assert len(children) >= 4
        os.killpg(up.process.pid, sig)
        assert up.process.wait(25) == 0, up.log.read_text()
    assert none_runs(children)
    assert running_stack(tmp_path / "home") is None
    assert not list((tmp_path / "home" / "run").glob("*.pid"))
    assert "Traceback" not in up.log.read_text()
    assert "killed" not in up.log.read_text()


def test_asked_to_stop_while_starting_leaves_no_process(tmp_path: Path) -> None:
    """A stack that is not ready yet stops too."""
    with harness_up(tmp_path / "home") as up:
        pid_file = tmp_path / "home" / "run" / "gateway.pid"
        wait_until(pid_file.exists, "the gateway to be started", 30)
        children = up.children()
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(25) == 0, up.log.read_text()
    assert none_runs(children)


def test_killed_stack_takes_its_processes_along_and_starts_again(tmp_path: Path) -> None:
    """After SIGKILL nothing runs on, and a cut tail of Redis' file does not block the next start."""
    home = tmp_path / "home"
    with harness_up(home) as up:
        with Redis.from_url(up.info().redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
            client.set("kept", "yes")  # pyright: ignore[reportUnknownMemberType]
            client.set("cut", "x" * 100)  # pyright: ignore[reportUnknownMemberType]
            await_synced(client)
        children = up.children()
        up.process.kill()
        up.process.wait()
        wait_until(lambda: none_runs(children), "the children to die", 10)
    journal = next((home / "valkey" / "appendonlydir").glob("*.incr.aof"))
    os.truncate(journal, journal.stat().st_size - 20)
    with harness_up(home) as up, Redis.from_url(up.info().redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
        assert client.get("kept") == b"yes"  # pyright: ignore[reportUnknownMemberType]


def test_unreadable_redis_data_does_not_block_the_start(tmp_path: Path) -> None:
    """Redis may lose everything: data it cannot read is set aside, and the log says so."""
    home = tmp_path / "home"
    data = home / "valkey" / "appendonlydir"
    data.mkdir(parents=True)
    (data / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    (data / "appendonly.aof.1.base.rdb").write_bytes(b"REDIS9999 of another age")
    with harness_up(home, "--tools", "0") as up:
        assert [process.role for process in up.info().processes] == ["redis", "gateway", "coordinator"]
    assert "valkey.unreadable" in up.log.read_text()
