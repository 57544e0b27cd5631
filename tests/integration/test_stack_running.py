"""A running stack: what it reports, that it restarts its processes, and that it keeps its home to itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest
from celery import Celery
from redis import Redis

from api_gateway.config import Settings as GatewaySettings
from harness_worker.adapters.embedded.valkey import answers
from harness_worker.entrypoints.cli.ready_screen import ready_screen
from harness_worker.entrypoints.stack import StackInfo, open_stack, running_stack
from harness_worker.entrypoints.stack.drain import CHILD_GRACE_SHARE
from harness_worker.errors import ConfigError
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import NOWHERE, serving
from tests.stacks import APP, HARNESS, ROOT, await_synced, role_pid, run_harness

pytestmark = pytest.mark.xdist_group("stack")  # one stack for all of them


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackInfo]:
    """One stack for this module; each test must leave it healthy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("HARNESS_GRACE_S", "69")
        patch.setenv("HARNESS_LOG_LEVEL", "DEBUG")
        with open_stack(home=tmp_path_factory.mktemp("stack") / "home", app=APP, coordinators=2, tools=1) as info:
            yield info


def is_ready(stack: StackInfo) -> bool:
    """Whether the gateway answers at the URL of the ready line."""
    try:
        return httpx2.get(f"{stack.gateway_url}/readyz", timeout=5, trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


def test_stack_is_ready_when_it_says_so(stack: StackInfo) -> None:
    """The ready line's URLs work at once, each of its processes runs, and other commands find it by its home."""
    assert is_ready(stack)
    assert answers(stack.redis_url)
    assert Path(stack.database_url.removeprefix("sqlite:///")).is_file()
    now = running_stack(stack.home)
    assert now is not None
    assert (now.gateway_url, now.pid) == (stack.gateway_url, stack.pid)
    assert [process.role for process in now.processes] == ["redis", "gateway", "coordinator", "tools"]
    assert all(psutil.Process(process.pid).ppid() == stack.pid for process in now.processes)


def test_stack_ready_line_has_its_fields(stack: StackInfo) -> None:
    """The line has what clients of a stack need."""
    line = json.loads(stack.ready_line())
    assert list(line) == ["gateway", "pid", "redis", "database", "home", "app", "processes"]
    assert line["processes"][0] == {"role": "redis", "pid": stack.processes[0].pid}


def test_stack_has_its_openers_grace(stack: StackInfo) -> None:
    """If a command starts a stack, its workers get the grace time that the user has set."""
    worker = psutil.Process(role_pid(stack.home, "tools"))
    assert float(worker.environ()["HARNESS_GRACE_S"]) == pytest.approx(69 * CHILD_GRACE_SHARE)


def test_second_up_on_a_home_is_refused(stack: StackInfo) -> None:
    """It exits with 1 and names home and pid; the first stack keeps running."""
    second = run_harness("up", "--home", str(stack.home), "--port", "0", "--app", APP)
    assert second.returncode == 1
    assert str(stack.home) in second.stderr
    assert str(stack.pid) in second.stderr
    assert second.stdout == ""
    assert "Traceback" not in second.stderr
    assert is_ready(stack)


def test_ready_screen_gives_commands_for_an_agent_there_is(stack: StackInfo) -> None:
    """The suggested command works as it is: it names a real agent at the real address."""
    screen = ready_screen(stack)
    assert f'curl -s {stack.gateway_url}/v1/turns -H \'Prefer: wait=20\' -d \'{{"agent": "trivial"' in screen
    assert "\x1b" not in screen


def test_ready_screen_calls_the_program_by_what_a_shell_finds(
    stack: StackInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its name if that is on the PATH, else by its whole path, as from a virtual environment that is not active."""
    program = tmp_path / "harness"
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(program), "up"])
    assert f"\n  {quote(str(program))} run " in ready_screen(stack)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "\n  harness run " in ready_screen(stack)


def test_ready_screen_says_that_there_is_no_agent(stack: StackInfo, sqlite_url: str) -> None:
    """An app may have only tools; then no command is suggested, because none would work."""
    with serving(GatewaySettings(database_url=sqlite_url, redis_url=NOWHERE, dev_keyless=True)) as url:
        screen = ready_screen(replace(stack, gateway_url=url))
    assert f"No agent can be asked: {APP} declares none." in screen
    assert "in another terminal" not in screen


def test_redis_asks_other_users_of_the_machine_for_a_password(stack: StackInfo) -> None:
    """The password is in the URL and in files of this user alone, but in no arguments and not on the screen."""
    parts = urlsplit(stack.redis_url)
    assert answers(stack.redis_url)
    assert not answers(f"redis://{parts.hostname}:{parts.port}/0")
    password = parts.password or ""
    assert len(password) > 40
    arguments = [process.cmdline() for process in psutil.Process(stack.pid).children()]
    assert len(arguments) == len(stack.processes)
    assert password not in repr(arguments)
    assert password not in ready_screen(stack)
    kept = [file for file in (stack.home / "run").iterdir() if password in file.read_text()]
    assert {file.stat().st_mode & 0o777 for file in kept} == {0o600}


@contextmanager
def second_worker(
    stack: StackInfo, directory: Path, *before: str, app: str = APP
) -> Generator[subprocess.Popen[bytes]]:
    """A worker beside the stack, which finds its URLs by the home; it is told to stop at the end."""
    ready, log = directory / "ready", directory / "log"
    options = ("--role", "tools", "--app", app, "--home", str(stack.home), "--concurrency", "1")
    command = [*before, *HARNESS, "worker", *options, "--ready-file", str(ready)]
    with log.open("wb") as said, subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said) as second:
        try:
            wait_until(ready.exists, "the second worker to consume", 60)
            yield second
        finally:
            second.terminate()
        assert second.wait(60) == 0, log.read_text()
    assert "Restarting" not in log.read_text()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
def test_second_worker_drains_on_a_signal(stack: StackInfo, tmp_path: Path, sig: signal.Signals) -> None:
    """Also when its terminal is closed; Celery would say that it starts again, and end."""
    with second_worker(stack, tmp_path) as second:
        second.send_signal(sig)


def test_second_worker_runs_though_its_app_takes_its_streams_away(stack: StackInfo, tmp_path: Path) -> None:
    """Celery could not start without them, and would not say why."""
    with second_worker(stack, tmp_path, app="tests.apps.mute:registry"):
        assert "mute" not in (tmp_path / "log").read_text(), "a traceback"


@pytest.mark.skipif(sys.platform != "linux", reason="tells which signals are ignored")
def test_second_worker_outlives_its_terminal_with_nohup(stack: StackInfo, tmp_path: Path) -> None:
    """As any other program: the signal stays ignored."""
    with second_worker(stack, tmp_path, "nohup") as second:
        assert _ignores_hangups(second)


@pytest.mark.skipif(sys.platform != "linux", reason="tells which signals are ignored")
def test_worker_without_a_broker_outlives_its_terminal_with_nohup(tmp_path: Path, sqlite_url: str) -> None:
    """Before it is ready, too: Celery sets a handler of its own by then."""
    log = tmp_path / "log"
    env = {**os.environ, "HARNESS_REDIS_URL": NOWHERE, "HARNESS_DATABASE_URL": sqlite_url}
    command = ["nohup", *HARNESS, "worker", "--role", "tools", "--app", APP, "--home", str(tmp_path)]
    with log.open("wb") as said, subprocess.Popen(command, cwd=ROOT, env=env, stdout=said, stderr=said) as worker:
        try:
            wait_until(lambda: "the broker does not answer" in log.read_text(), "the worker to miss its broker", 60)
            assert _ignores_hangups(worker)
        finally:
            worker.kill()


def _ignores_hangups(process: subprocess.Popen[bytes]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored & (1 << (signal.SIGHUP - 1)))


@pytest.mark.parametrize("role", ["redis", "gateway", "coordinator", "tools"])
def test_killed_process_is_started_again(stack: StackInfo, role: str) -> None:
    """Whichever process dies is started again, and the stack's URLs stay valid."""
    with Redis.from_url(stack.redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
        client.set("survives", role)  # pyright: ignore[reportUnknownMemberType]
        await_synced(client)
    killed = role_pid(stack.home, role)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: role_pid(stack.home, role) not in (0, killed), f"{role} to come back", 60)
    wait_until(lambda: answers(stack.redis_url), "redis at the same URL", 60)
    wait_until(lambda: is_ready(stack), "the gateway at the same URL", 60)
    if role in ("coordinator", "tools"):
        wait_until((stack.home / "run" / f"{role}.ready").exists, f"{role} to consume again", 60)
    with Redis.from_url(stack.redis_url) as client:  # pyright: ignore[reportUnknownMemberType]
        assert client.get("survives") == role.encode()  # pyright: ignore[reportUnknownMemberType]


def test_log_has_no_words_of_users_at_any_level(stack: StackInfo) -> None:
    """No line, Celery's included, has a turn's input or its system prompt."""
    spoken, prompted = uuid.uuid4().hex, uuid.uuid4().hex
    asked = {"agent": "trivial", "input": spoken, "system_prompt_override": prompted}
    with Celery("shop", broker=stack.redis_url, backend=stack.redis_url, set_as_current=False) as producer:
        sent = producer.send_task("turn.submit", kwargs=asked, queue="turns.interactive")
        assert sent.get(timeout=60) == sent.id
    log = stack.home / "logs" / "up.log"
    wait_until(lambda: f"Task turn.submit[{sent.id}] succeeded" in log.read_text(), "the last line of it", 60)
    logged = log.read_text()
    assert "DEBUG/MainProcess" in logged
    assert (spoken in logged, prompted in logged) == (False, False)


def test_bad_app_is_told_to_the_opener(tmp_path: Path) -> None:
    """If a stack cannot start, the error has the message of the process that failed."""
    with pytest.raises(ConfigError, match="no_such_module"), open_stack(home=tmp_path / "home", app="no_such_module:x"):
        pass
