"""Carries out the action of a fault, on this process or its worker."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, assert_never

import psutil

from harness_worker.errors import TransientError
from harness_worker.faults.plan import Action, Fault

_UNTIL_DEAD_S: Final = 10.0
_WAKE: Final = 'sleep "$0"; kill -CONT "$@"'


class InjectedFault(TransientError):  # noqa: N818 - reads as what it says
    """Raised where a plan wants a service not to answer."""


def act(fault: Fault, *, worker_pid: int) -> None:
    """Carry out a fault's action.

    Args:
        fault: The fault.
        worker_pid: The parent of the pool that this process belongs to, or this process itself.

    Raises:
        InjectedFault: The action is ``RAISE``.
    """
    match fault.action:
        case Action.RAISE:
            raise InjectedFault(f"fault injected at {fault.point}")
        case Action.HANG:
            threading.Event().wait(fault.seconds)
        case Action.KILL_CHILD:
            _kill(os.getpid())
        case Action.KILL_WORKER:
            _kill(worker_pid)
        case Action.STOP_CHILD:
            _stop([os.getpid()], fault.seconds)
        case Action.STOP_WORKER:
            _stop([*_children(worker_pid), worker_pid], fault.seconds)
        case _:
            assert_never(fault.action)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    threading.Event().wait(_UNTIL_DEAD_S)  # a pool process dies a moment after its worker


def _stop(pids: Sequence[int], seconds: float) -> None:
    """Stop these processes, this one last; a process outside all of them will resume them."""
    mine = os.getpid()
    names = [str(seconds), *map(str, pids)]
    # In a session of its own, so that it survives if this process's group is killed meanwhile.
    subprocess.Popen(["/bin/sh", "-c", _WAKE, *names], start_new_session=True, env={})  # noqa: S603 - our own script
    for pid in sorted(pids, key=lambda pid: pid == mine):
        with suppress(ProcessLookupError):  # a dead child that the call above has just reaped
            os.kill(pid, signal.SIGSTOP)


def _children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]
