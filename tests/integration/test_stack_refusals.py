"""What ``harness up`` refuses: each time with a helpful message and the right exit code, and nothing keeps running."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import psutil
import pytest

from harness_worker.adapters.embedded.ports import listening_socket, port_of
from harness_worker.entrypoints.stack.killing import marked_processes
from tests.stacks import APP, HARNESS, ROOT, run_harness, run_here


@pytest.mark.parametrize(
    ("arguments", "env", "code", "words"),
    [
        ([], {}, 2, "--app package.module:registry"),
        (["--app", "tests.apps.raises:registry"], {}, 2, "RuntimeError: the licence has expired"),
        (["--app", "tests.apps.interrupts:registry"], {}, 2, "or the application raised KeyboardInterrupt"),
        (["--app", APP], {"HARNESS_REDIS_URL": "redis://:hidden@127.0.0.1:1/0"}, 3, "redis://:***@127.0.0.1:1/0"),
        (["--app", APP], {"HARNESS_REDIS_URL": "http://127.0.0.1"}, 2, "HARNESS_REDIS_URL"),
        (["--app", APP], {"HARNESS_BROKER_URL": "amqp://me:hidden@127.0.0.1:1//"}, 3, "me:***@127.0.0.1:1// does not"),
        (["--app", APP], {"HARNESS_BROKER_URL": "redis://:hidden@127.0.0.1:1/0"}, 3, "correct HARNESS_BROKER_URL"),
        (["--app", APP], {"HARNESS_DATABASE_URL": "postgresql://me:hidden@127.0.0.1:1/x"}, 3, "me:***@127.0.0.1"),
        (["--app", APP], {"HARNESS_GRACE_S": "soon"}, 2, "HARNESS_GRACE_S"),
        (["--app", APP], {"HARNESS_BODY_IDLE_S": "soon"}, 2, "harness: HARNESS_BODY_IDLE_S='soon'"),
        (["--app", APP], {"HARNESS_VAULT": "no/such/vault"}, 2, "vault 'no/such/vault': No such file or directory"),
    ],
)
def test_up_refuses_with_a_message(
    tmp_path: Path, arguments: list[str], env: dict[str, str], code: int, words: str
) -> None:
    """Wrong usage exits 2, an unreachable service 3; passwords and tracebacks are never shown."""
    home = tmp_path / "home"
    refused = run_harness("up", "--home", str(home), "--port", "0", *arguments, env=env)
    assert refused.returncode == code, refused.stderr
    assert words in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("harness: ") or words in refused.stderr.splitlines()[-1]
    assert "hidden" not in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""
    assert marked_processes(str(home)) == []


@pytest.mark.parametrize(
    ("app", "words"), [("shop", "write it as module:registry"), ("no_such_module:registry", "No module named")]
)
def test_up_refuses_an_app_that_cannot_be_before_it_starts_anything(tmp_path: Path, app: str, words: str) -> None:
    """It prints one line at once, starts no Redis and makes no home."""
    refused = run_here("up", "--home", str(tmp_path / "home"), "--port", "0", "--app", app)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"harness: application {app!r}: ")
    assert words in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()


def test_up_names_a_port_that_is_taken(tmp_path: Path) -> None:
    """A port in use is wrong usage; the message names it and says what to do."""
    with listening_socket() as taken:
        port = str(port_of(taken))
        refused = run_harness("up", "--home", str(tmp_path / "home"), "--port", port, "--app", APP)
    assert refused.returncode == 2
    assert port in refused.stderr
    assert "--port" in refused.stderr


@pytest.mark.parametrize("command", [["up", "--app", APP], ["demo"], ["sweep", "run", "tau2-retail"]])
def test_a_home_that_cannot_be_is_named(tmp_path: Path, command: list[str]) -> None:
    """A home that is a file, or that cannot be written to, is wrong usage."""
    home = tmp_path / "home"
    home.write_text("not a directory")
    refusals = [run_here(*command, "--home", str(home))]
    home.unlink()
    (home / "run").mkdir(parents=True)
    (home / "run" / "lock").symlink_to("/proc/nothing/can/be/written/here")
    refusals.append(run_here(*command, "--home", str(home)))
    for refused in refusals:
        assert refused.returncode == 2, refused.stderr
        assert f"cannot use {home} as home" in refused.stderr
        assert "--home" in refused.stderr


@pytest.mark.parametrize(
    ("env", "is_coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_log_on_a_terminal_has_the_colours_that_it_can_show(
    tmp_path: Path, env: dict[str, str], is_coloured: bool
) -> None:
    """Nobody wants colours who sets NO_COLOR to anything (no-color.org), and not every terminal has them."""
    usual = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    unreachable = {"HARNESS_REDIS_URL": "redis://127.0.0.1:1/0"}
    ours, terminal = pty.openpty()
    try:
        command = [*HARNESS, "up", "--home", str(tmp_path), "--port", "0", "--app", APP]
        subprocess.run(command, env={**usual, **unreachable, **env}, cwd=ROOT, stderr=terminal, check=False, timeout=60)
        shown = ""
        while "stopped" not in shown:  # it need not come at once
            shown += os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(terminal)
    assert ("\x1b[" in shown) is is_coloured


def test_refused_up_leaves_no_server() -> None:
    """No Valkey runs for a home of these tests; other tests of this process may have theirs."""
    servers = [process for process in psutil.Process().children(recursive=True) if "valkey" in process.name()]
    assert not [server for server in servers if any("test_up_" in argument for argument in server.cmdline())]
