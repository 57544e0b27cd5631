"""Kills processes, which it finds by their POSIX session or by the home that they were started for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import psutil

MARK = "_HARNESS_UP_HOME"
"""The variable that says in each process of a stack which home it belongs to."""

_WAIT_S = 5.0
_LOOK_S = 0.02


def kill_session(session: int) -> None:
    """Kill every process of a session; each child of the stack leads one, named by its pid."""
    kill(process for process in psutil.process_iter() if _session_of(process) == session)


def marked_processes(home: str) -> list[psutil.Process]:
    """Every other process whose environment names ``home`` as the home of its stack."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _mark(process) == home]


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait until they have ended; their parents may take longer to notice."""
    killed = list(processes)
    for process in killed:
        try:
            process.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    until = time.monotonic() + _WAIT_S
    while killed and time.monotonic() < until:
        _, known = psutil.wait_procs(killed, timeout=_LOOK_S)
        killed = [process for process in known if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
