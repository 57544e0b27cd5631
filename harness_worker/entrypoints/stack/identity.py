"""Identifies a process by pid and start time, because the system reuses pids."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_PROC: Final = Path("/proc")
_START_FIELD: Final = 19
"""The field in ``/proc/PID/stat``, after the name, of clock ticks from boot to start (proc_pid_stat(5), field 22)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process: its pid, and its start as a text that does not change when the clock is set."""

    pid: int
    start: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The process that has ``pid`` now; a process that is already gone has no start."""
        return cls(pid=pid, start=_start_of(pid))

    def process(self) -> psutil.Process | None:
        """The process, unless it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = self.start != "" and _start_of(self.pid) == self.start
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process() is not None


def _start_of(pid: int) -> str:
    """A process's start. On Linux in ticks since boot, because its times of day move when the clock is set."""
    try:
        if not psutil.LINUX:
            return f"{psutil.Process(pid).create_time():.2f}"
        of_process = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return f"{_boot()}+{of_process[_START_FIELD]}"
    except (OSError, psutil.NoSuchProcess):
        return ""


def _boot() -> str:
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""
