"""Runs a server's command, and ends everything that it started as soon as it or the process that wants it ends.

It is a program, run as ``python -I -S command_guard.py PARENT_PID COMMAND…`` in a process group of its own; the command
inherits its pipes and its group. It only needs the standard library, so that it starts in about 20 ms. Where the kernel
has no parent-death signal (macOS), a server whose harness was killed only notices the end of its input.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_NOT_RUN = 127


def guarded(command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` under guard, for a child of this process that leads a group of its own.

    The kernel regards the calling *thread* as the parent, so start it from one that lives as long as the server.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _guard(parent_pid: int, command: Sequence[str]) -> None:
    signal.signal(signal.SIGHUP, _end_group)
    signal.signal(signal.SIGTERM, _stay)  # sent to the whole group: the server may exit in its own way
    # Threads of the harness block signals, and their children inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _die_with(parent_pid, signal.SIGHUP)
    mine = os.getpid()
    server = os.fork()
    if server == 0:
        _die_with(mine, signal.SIGKILL)
        _become(command)
    _let_go()
    os.waitpid(server, 0)
    _end_group()


def _die_with(parent_pid: int, told: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(told), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def _become(command: Sequence[str]) -> None:
    try:
        os.execvp(command[0], list(command))  # noqa: S606 - the command is the application's own
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_RUN)


def _let_go() -> None:
    """Close this process's ends of the pipes, so that only the server keeps them open."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for end in (0, 1):
        os.dup2(nowhere, end)


def _end_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def _stay(*_: object) -> None:
    """Do nothing. A handler is needed because the command would inherit an ignored signal."""


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2:])
