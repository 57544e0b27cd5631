"""The command line in general: help, version, exit codes, and the small commands."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from harness_worker.adapters.embedded.ports import free_port
from harness_worker.entrypoints.serving.listening import listen
from harness_worker.errors import ConfigError
from tests.stacks import APP, HARNESS, ROOT, UNREAD, run_harness, run_here


def test_help_shows_how_to_start() -> None:
    """The help tells a newcomer how to start a stack."""
    shown = run_harness("--help")
    assert shown.returncode == 0
    assert "harness up --app package.module:registry" in shown.stdout


def test_version_is_one_line() -> None:
    """Scripts can read the version."""
    shown = run_harness("--version")
    assert shown.returncode == 0
    assert shown.stdout.startswith("harness ")
    assert shown.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["up", "--port", "http"], "--port"),
        (["worker", "--role", "king"], "--role"),
        (["worker", "--role", "tools", "--home", "/nonexistent"], "HARNESS_REDIS_URL"),
        (["worker", "--role", "coordinator", "--queues", "turns.batch,turns.btch"], "--queues turns.btch: a worker of"),
        (
            ["worker", "--role", "tools", "--queues", "turns.batch"],
            "--queues turns.batch: a worker of role tools takes",
        ),
        (["worker", "--role", "tools", "--ready-file", "/nonexistent/r"], "--ready-file /nonexistent/r: No such file"),
        (["up", "--home", ""], "--home is blank: name a directory"),
        (["turns", "list", "--home=  "], "--home is blank: name a directory"),
        (["usage", "--until", ""], "--until : give 30m, 12h"),
        (
            ["turns", "cancel", "--metadata", "a=b", "--url", ""],
            "--url is blank: give http://HOST:PORT, or leave it out",
        ),
    ],
)
def test_wrong_usage_exits_2(arguments: list[str], words: str) -> None:
    """Wrong usage names what is wrong, without a traceback."""
    run = run_harness if arguments[0] == "worker" else run_here  # a worker takes over the streams of its process
    refused = run(*arguments)
    assert refused.returncode == 2, refused.stderr
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


def test_worker_is_not_taken_for_ready_because_an_earlier_one_was(tmp_path: Path) -> None:
    """A container that is restarted has the file of the time before, also while its worker cannot start."""
    ready = tmp_path / "ready"
    ready.write_text("1\n")
    assert run_harness("worker", "--role", "tools", "--home", str(tmp_path), "--ready-file", str(ready)).returncode == 2
    assert not ready.exists()


def test_worker_that_is_not_ready_yet_has_no_ready_file_for_a_moment(tmp_path: Path) -> None:
    """Whoever waits for the file would take it for ready, and a stop would end it without a drain."""
    ready, shown = tmp_path / "ready", tmp_path / "shown"
    ready.symlink_to(shown)  # what was written there would stay
    assert run_harness("worker", "--role", "tools", "--home", str(tmp_path), "--ready-file", str(ready)).returncode == 2
    assert list(tmp_path.iterdir()) == [ready]


def test_worker_whose_ready_file_would_have_no_room_does_not_start(tmp_path: Path) -> None:
    """It would serve, but never be healthy; and what is no file is not removed."""
    ready = tmp_path / "ready"
    ready.symlink_to("/dev/full")
    refused = run_harness("worker", "--role", "tools", "--ready-file", str(ready))
    assert (refused.returncode, refused.stderr) == (2, f"harness: --ready-file {ready}: No space left on device\n")
    assert ready.is_symlink()


UNSTARTABLE = """
from importlib import import_module
command = import_module("harness_worker.entrypoints.cli.gateway")

async def app(scope, receive, send):
    raise MemoryError

def create():
    return app

command._APP = "__main__:create"
command.gateway(host="127.0.0.1", port=0)
"""


def test_gateway_whose_own_tasks_do_not_start_ends() -> None:
    """Otherwise it would answer requests, but hear no live event and deliver no webhook until it is restarted."""
    command = [sys.executable, "-c", UNSTARTABLE]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, "startup failed" in ended.stderr) == (3, True), ended.stderr


def test_gateway_checks_its_settings_before_it_listens() -> None:
    """Nobody connects to one that cannot serve; with a taken port, the message shows which of the two came first."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = run_here("gateway", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 2, refused.stderr
    assert "HARNESS_DATABASE_URL" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_port_in_use_is_told_once() -> None:
    """The address is in the harness's own words, and not once more in Python's."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = rf"^cannot serve 127.0.0.1 port {port}: Address already in use; see --host and --port$"
        with pytest.raises(ConfigError, match=told):
            listen("127.0.0.1", port)


def test_blank_address_is_refused() -> None:
    """An unset shell variable must not make a service reachable from other machines."""
    with pytest.raises(ConfigError, match=r"^--host is blank: .*; 0\.0\.0\.0 is every one of this machine$"):
        listen("", 0)


@pytest.mark.parametrize("role", ["coordinator", "tools"])
def test_worker_that_cannot_start_leaves_the_catalogue_as_it_was(role: str, sqlite_url: str) -> None:
    """The gateway keeps serving what the running workers have published."""
    place = {"HARNESS_DATABASE_URL": sqlite_url, "HARNESS_REDIS_URL": "redis://127.0.0.1:1/0"}
    refused = run_harness("worker", "--role", role, "--app", APP, env={**place, "HARNESS_ARTIFACT_URL": "nope://x"})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "HARNESS_ARTIFACT_URL" in refused.stderr
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as database:
        assert database.execute("SELECT name FROM agents").fetchall() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["turns", "list", "--limit", "x"], "'--limit': 'x' is not a whole number from 1 to 200\n"),
        (["turns", "list", "--limit", "0"], "'--limit': '0' is not a whole number from 1 to 200\n"),
        (["turns", "cancel", "--wait", "nan"], "'--wait': 'nan' is not a number from 0 to 600\n"),
        (["up", "--coordinators", "0"], "'--coordinators': '0' is not a whole number of at least 1\n"),
        (["gateway", "--fd", "x"], "'--fd': 'x' is not a whole number\n"),
        (["turns", "list", "--limit", "9" * 5_000], f"'--limit': '{'9' * 80}' is not a whole number"),
        (["worker", "--role", "x"], "'--role': 'x' is not one of 'coordinator', 'tools'\n"),
        (["turns", "list", "--status", ""], "'--status': '' is not one of 'queued', 'running',"),
    ],
)
def test_bad_value_of_an_option_is_told_with_those_allowed(arguments: list[str], told: str) -> None:
    """The words are the harness's own, not those of the library that reads values."""
    refused = run_here(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"Error: Invalid value for {told}" in refused.stderr


@pytest.mark.parametrize("arguments", [["run", "caf\udce9"], ["turns", "list", "--home=\udce9"]])
def test_an_argument_that_is_no_text_is_wrong_usage(arguments: list[str]) -> None:
    """Bytes that are not UTF-8 never reach JSON or SQL; the message shows which argument has them."""
    refused = run_harness(*arguments, env={"PYTHONUTF8": "1"})
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.startswith("harness: ")
    assert r"\xe9" in refused.stderr
    assert "not text in utf-8" in refused.stderr


@contextmanager
def gateway_that_says(status: int, document: object) -> Generator[str]:
    """The URL of a server that answers every GET in the same way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_gateway_whose_database_is_away_is_a_stack_that_does_not_answer() -> None:
    """The exit code is that of an unreachable gateway, because no work has failed."""
    with gateway_that_says(503, {"status": 503, "code": "not_ready", "detail": "no database"}) as url:
        listed = run_here("turns", "list", "--url", url)
    assert (listed.returncode, listed.stdout) == (3, "")
    assert "no database (503 not_ready)" in listed.stderr


def test_run_where_there_is_no_agent_says_why_that_may_be() -> None:
    """Rather than to name one with --agent."""
    with gateway_that_says(200, {"data": []}) as url:
        refused = run_here("run", "hello", "--url", url)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "harness: the stack serves no agent: its app has none, or no coordinator runs" in refused.stderr


@pytest.mark.parametrize(
    ("loaded", "level", "is_shown"),
    [("httpx2", "INFO", False), ("httpx2", "debug", True), ("pydantic", "debug", False)],
)
def test_internal_error_shows_where_if_the_log_level_is_debug(
    loaded: str, level: str, is_shown: bool, tmp_path: Path
) -> None:
    """The error's message promises a traceback at that level; there is none if the settings cannot be read."""
    (tmp_path / f"{loaded}.py").write_text("raise RuntimeError('odd')\n")
    failed = run_harness("turns", "list", env={"PYTHONPATH": str(tmp_path), "HARNESS_LOG_LEVEL": level})
    *before, last = failed.stderr.splitlines()
    assert (failed.returncode, last) == (
        1,
        "harness: internal error: RuntimeError: odd (HARNESS_LOG_LEVEL=DEBUG shows where)",
    )
    assert (before[:1], f"{loaded}.py" in failed.stderr) == (
        (["Traceback (most recent call last):"], True) if is_shown else ([], False)
    )


@pytest.mark.parametrize("loaded", ["pydantic", "typer", "httpx2"])
def test_ctrl_c_while_it_loads_is_no_traceback(loaded: str, tmp_path: Path) -> None:
    """Whatever part is being imported when Ctrl-C comes, the command exits at once with 130 and prints nothing."""
    (tmp_path / f"{loaded}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    stopped = run_harness("turns", "list", env={"PYTHONPATH": str(tmp_path)})
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (130, "", "")


@pytest.mark.parametrize(("loaded", "command"), [("annotated_types", ["keys", "list"]), ("limits", ["doctor"])])
def test_ctrl_c_while_a_part_is_imported_late_is_not_lost(loaded: str, command: list[str], tmp_path: Path) -> None:
    """An exception would be, in one of the import system's callbacks: so in those parts that take long."""
    lines = ["import os, signal, weakref", "class Part: pass", "part = Part()"]
    lines += ["gone = weakref.ref(part, lambda _: os.kill(os.getpid(), signal.SIGINT))", "del part"]
    (tmp_path / f"{loaded}.py").write_text("\n".join(lines))
    places = {"HARNESS_GATEWAY_URL": "http://127.0.0.1:1", "PYTHONPATH": str(tmp_path)}
    stopped = run_harness(*command, "--home", str(tmp_path), env=places)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (130, "", "")


def test_ctrl_c_while_a_worker_waits_for_its_broker_is_told_by_its_exit_code(sqlite_url: str) -> None:
    """It is 130, as of any command that is not ready yet."""
    places = {"HARNESS_DATABASE_URL": sqlite_url, "HARNESS_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    command = [*HARNESS, "worker", "--role", "coordinator", "--app", APP]
    env = {**os.environ, **places}
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=PIPE, stderr=STDOUT, text=True) as worker:
        assert worker.stdout is not None
        try:
            assert any("the broker does not answer" in line for line in worker.stdout)
            worker.send_signal(signal.SIGINT)
            assert worker.wait(60) == 130
        finally:
            worker.kill()


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        (">/dev/full", 1, "harness: cannot write the output: No space left on device\n"),
        (">/dev/full 2>/dev/full", 1, ""),
        (">&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        (">&9", 1, ""),
    ],
)
@pytest.mark.parametrize("command", ["--version", "migrate --json --home HOME"])
def test_output_that_cannot_be_written_is_told(
    command: str, ending: str, code: int, words: str, tmp_path: Path
) -> None:
    """A full disk is reported; nothing is printed for users who closed stdout or stopped reading."""
    line = f"{UNREAD} {shlex.join(HARNESS)} {command.replace('HOME', shlex.quote(str(tmp_path / 'home')))} {ending}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", words)


def test_what_cannot_be_told_keeps_its_exit_code() -> None:
    """Wrong usage exits with 2, even if its message cannot be written."""
    for closed in ("2>/dev/full", "2>&-"):
        line = f"{shlex.join(HARNESS)} turns list --url gateway {closed}"
        assert subprocess.run(["bash", "-c", line], cwd=ROOT, timeout=60, check=False).returncode == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("turns list --home '~nobody-has-this-name/home'", "home: Could not determine home directory; choose another"),
        ("migrate --home home", "cannot use home as home: the working directory was removed; choose another"),
    ],
)
def test_a_home_that_leads_nowhere_is_wrong_usage(command: str, words: str, tmp_path: Path) -> None:
    """Examples are the home of an unknown user, and a relative one in a directory that was removed."""
    here = shlex.quote(str(tmp_path))
    line = f"cd {here}; rmdir {here}; PYTHONPATH={shlex.quote(str(ROOT))} {shlex.join(HARNESS)} {command}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, words in ran.stderr) == (2, True), ran.stderr


def test_migrate_is_idempotent(tmp_path: Path) -> None:
    """A second migration has nothing to do, and says so."""
    home = str(tmp_path / "home")
    first, second = (json.loads(run_harness("migrate", "--home", home, "--json").stdout) for _ in range(2))
    assert first["from"] is None
    assert second["from"] == second["to"] == first["to"]
