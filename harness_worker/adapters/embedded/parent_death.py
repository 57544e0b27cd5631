"""Ends a process when the one that started it dies, however it dies.

As a module it offers :func:`guarded` and :func:`die_with_parent`. As a program it is the guard itself, run before the
real command in the same process: ``python -I -S parent_death.py PARENT_PID USER COMMAND…``. It is a program rather than
a ``preexec_fn``, because that runs Python between fork and exec, which is unsafe in a parent with threads.

Only the standard library is imported, so that the guard takes about 20 ms. Where the kernel has no parent-death signal
(macOS), the command runs unguarded, and the next start deals with what is left over.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def guarded(command: Sequence[str], *, user: str = "") -> list[str]:
    """The command that runs ``command`` in a process that dies with the calling one.

    The kernel regards the calling *thread* as the parent, so start children from a thread that lives as long as the
    process.

    Args:
        command: Program and arguments.
        user: Become this user first (needs root); empty: stay the current user.

    Returns:
        Program and arguments for ``subprocess``; the pid stays that of the command.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), user, *command]


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel, if it can, to kill this process when its parent dies; end it if the parent is already dead.

    Args:
        parent_pid: The parent at the time when this process was started.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)  # the parent died before we could ask


def _become(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _guard(parent_pid: int, user: str, command: Sequence[str]) -> None:
    if user:
        _become(user)  # first: a change of user clears the parent-death signal
    die_with_parent(parent_pid)
    os.execvp(command[0], list(command))  # noqa: S606 - the command is our caller's own


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
