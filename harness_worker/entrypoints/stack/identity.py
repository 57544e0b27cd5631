"""Which process is meant by a pid that was written down: pids are given again, start times tell them apart."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

_CLOCK_TOLERANCE_S = 1.0
"""Start times are kept relative to the boot time, which the kernel states to about this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process: its pid, and when it started in seconds since the epoch."""

    pid: int
    started_at: float

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The process that has ``pid`` now; one that is gone already has started at 0."""
        try:
            return cls(pid=pid, started_at=psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return cls(pid=pid, started_at=0.0)

    def process(self) -> psutil.Process | None:
        """The process, unless it ended."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started_at) < _CLOCK_TOLERANCE_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process() is not None
