"""Runs a server's command, and ends all that it started as soon as it ends, or whoever asked for it does.

A program, run as ``python -I -S command_guard.py PARENT_PID COMMAND…`` in a process group of its own; the command
inherits its pipes and its group. It needs only the standard library, so that it costs about 20 ms. Where the kernel
knows no parent-death signal (macOS), a server whose harness was killed is told by the end of its input alone.
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

    The kernel takes the calling *thread* for the parent: start it from one that lives as long as the server shall.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _guard(parent_pid: int, command: Sequence[str]) -> None:
    signal.signal(signal.SIGHUP, _end_group)
    signal.signal(signal.SIGTERM, _stay)  # told to the whole group: the server may take its leave
    # A thread of the harness hears no signal, and its children inherit that.
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
    """Close this process's ends of the pipes: the server's alone shall keep them open."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for end in (0, 1):
        os.dup2(nowhere, end)


def _end_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def _stay(*_: object) -> None:
    """Go on: to be ignored, the signal would be ignored by the command as well."""


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2:])
