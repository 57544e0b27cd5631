"""Runs a stack in a process of its own for as long as a context lasts."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from harness_worker.adapters.embedded.parent_death import guarded
from harness_worker.config import environment, load_settings
from harness_worker.entrypoints.stack.child import CLI
from harness_worker.entrypoints.stack.failures import start_failure
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.info import StackInfo, from_ready_line
from harness_worker.errors import TransientError
from harness_worker.threads.timeouts import within

_START_TIMEOUT_S: Final = 180.0
_DRAIN_SLACK_S: Final = 10.0
_KILL_TIMEOUT_S: Final = 5.0


@contextmanager
def open_stack(
    *,
    home: Path,
    app: str,
    coordinators: int = 2,
    tools: int = 4,
    env: Mapping[str, str] | None = None,
    only_for: str | None = None,
) -> Generator[StackInfo]:
    """Run ``harness up`` in the background, wait until it is ready, and drain it at the end.

    Its log is ``HOME/logs/up.log``. It dies with the calling thread, however that ends.

    Args:
        home: The directory for its data.
        app: The registry to serve, ``package.module:registry``.
        coordinators: Threads of the coordinator process.
        tools: Processes of the tool worker's pool.
        env: Variables on top of this process's environment.
        only_for: The command that it serves; shown to others who find it.

    Raises:
        HomeInUse: Another stack runs there.
        HarnessError: It did not start. The message and the class are those of its own error: ``ConfigError``,
            ``TransientError`` or ``StartFailed``.
    """
    place = Home(home)
    place.prepare()
    options = ("--json", "--home", str(place.path), "--app", app, "--port", "0")
    sizes = ("--coordinators", str(coordinators), "--tools", str(tools))
    whose = ("--only-for", only_for) if only_for else ()
    variables = {**environment(), **(env or {})}
    grace_s = load_settings(grace_s=variables.get("HARNESS_GRACE_S") or None).grace_s
    log = place.logs / "up.log"
    with place.locked(only_for) as lock, log.open("wb") as sink:  # else another stack's log would be emptied
        process = _started([*CLI, "up", *options, *sizes, *whose, "--lock-fd", str(lock)], variables, sink, lock)
    try:
        yield _await_ready(process, log)
    finally:
        _drain(process, grace_s + _DRAIN_SLACK_S)


def _started(command: list[str], env: Mapping[str, str], log: IO[bytes], lock: int) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own command
        guarded(command),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        pass_fds=(lock,),
        start_new_session=True,  # Ctrl-C reaches the caller, who then drains it
    )


def _await_ready(process: subprocess.Popen[str], log: Path) -> StackInfo:
    line = _first_line(process)
    if line:
        return from_ready_line(line)
    raise start_failure("up", process.wait(), log.read_text(errors="replace"), str(log))


def _first_line(process: subprocess.Popen[str]) -> str:
    output = process.stdout
    if output is None:
        return ""
    try:
        return within(_START_TIMEOUT_S, output.readline)
    except TimeoutError:
        raise TransientError(f"the stack was not ready after {_START_TIMEOUT_S:g} s") from None


def _drain(process: subprocess.Popen[str], timeout_s: float) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # it sleeps in the kernel, until a disk or a network answers
            process.wait(_KILL_TIMEOUT_S)
    if process.stdout is not None:
        process.stdout.close()
