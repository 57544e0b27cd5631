"""Runs a server process for as long as a context lasts."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness_worker.testing.waiting import wait_until

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


@contextmanager
def running_server(
    command: Sequence[str], *, log: Path, is_ready: Callable[[], bool], stop: signal.Signals
) -> Generator[subprocess.Popen[bytes]]:
    """Start a server, wait until it answers, and stop it at the end.

    Args:
        command: Program and arguments.
        log: The file for its output.
        is_ready: Whether the server answers.
        stop: The signal that ends it at once and cleanly.

    Raises:
        RuntimeError: It ended before it answered; the message contains its log.
    """
    with log.open("wb") as output:
        # In a session of its own, so that Ctrl-C in the terminal reaches only the tests, which then stop the server.
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)  # noqa: S603 - the tests' own
    try:
        wait_until(lambda: _answers(process, is_ready, log), f"{command[0]} to answer", _START_TIMEOUT_S)
        yield process
    finally:
        _stop(process, stop)


def _answers(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"{process.args!r} ended at start:\n{log.read_text(errors='replace')}")
    return is_ready()


def _stop(process: subprocess.Popen[bytes], sig: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(sig)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
