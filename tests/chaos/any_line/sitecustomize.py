"""Kills workers at lines of their own code. Python imports it in every process that has this directory on its path.

One line in ``KILL_ONE_IN`` is struck; ``KILL_SEED`` selects which. While the directory ``KILL_LINES`` contains a file
``on``, the first worker of a fleet to reach such a line kills itself there, and leaves a file that names the line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import zlib
from pathlib import Path
from types import FrameType
from typing import Any, Final

ROOT: Final = f"{Path(__file__).parents[3]}/"
OURS: Final = f"{ROOT}harness_worker/"
NOT_OURS: Final = f"{OURS}testing/"
PAUSE_S: Final = 2.5
"""Seconds between two kills in a fleet: workers that never get to start prove nothing."""

_FUNCTION: Final = 0x1


class LineKiller:
    """Traces this process and those that it forks.

    Args:
        directory: Where kills are recorded, one file for each.
        seed: Decides which lines are struck.
        one_in: How many lines there are for each that is struck.
    """

    def __init__(self, directory: Path, seed: str, one_in: int) -> None:
        self._directory = directory
        self._seed = seed
        self._one_in = one_in
        self._passed: set[tuple[str, int]] = set()

    def trace(self, frame: FrameType, *_: object) -> Any:  # noqa: ANN401 - what sys.settrace asks for
        """Trace the harness's functions, but not code that imports run, which would only keep workers from starting."""
        code = frame.f_code
        ours = code.co_filename.startswith(OURS) and not code.co_filename.startswith(NOT_OURS)
        return self._at_line if ours and code.co_flags & _FUNCTION else None

    def _at_line(self, frame: FrameType, *_: object) -> Any:  # noqa: ANN401 - as above
        line = (frame.f_code.co_filename, frame.f_lineno)
        if line not in self._passed:
            self._come_to(line)
        return self._at_line

    def _come_to(self, line: tuple[str, int]) -> None:
        name = f"{line[0].removeprefix(ROOT)}:{line[1]}"
        if zlib.crc32(f"{self._seed} {name}".encode()) % self._one_in:
            self._passed.add(line)
        elif (self._directory / "on").exists() and self._is_time():
            self._passed.add(line)
            self._die_once(self._directory / name.replace("/", "|"))

    def _is_time(self) -> bool:
        return time.time() - self._directory.stat().st_mtime > PAUSE_S  # the last kill's file changed that time

    def _die_once(self, told: Path) -> None:
        try:
            told.open("x").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


if "KILL_LINES" in os.environ and "worker" in sys.orig_argv:
    _killer = LineKiller(Path(os.environ["KILL_LINES"]), os.environ["KILL_SEED"], int(os.environ["KILL_ONE_IN"]))
    threading.settrace(_killer.trace)
    sys.settrace(_killer.trace)
