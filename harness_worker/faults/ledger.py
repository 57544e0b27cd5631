"""The record of strikes: one line for each, shared by all processes of a fleet, and kept whatever happens to them."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from harness_worker.faults.plan import Action, Fault
from harness_worker.faults.points import Point

LEDGER_FILE: Final = "fired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """One strike: where, what, when (in seconds since the epoch), in which process, and the fault as planned."""

    point: Point
    action: Action
    at: float
    pid: int
    plan: str


class Ledger:
    """The file in which strikes are recorded.

    Args:
        directory: The directory of the file.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / LEDGER_FILE

    def fired(self) -> list[Fired]:
        """All strikes so far, in order."""
        text = self._file.read_text() if self._file.exists() else ""
        return [_fired(line) for line in text.splitlines()]

    def claim(self, fault: Fault) -> bool:
        """Record a strike of ``fault`` unless it has struck as often as it may; return whether it may strike."""
        with self._file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if fault.times is not None and self._strikes(fault) >= fault.times:
                return False
            strike = Fired(point=fault.point, action=fault.action, at=time.time(), pid=os.getpid(), plan=str(fault))
            file.write(json.dumps(asdict(strike)) + "\n")
            return True

    def _strikes(self, fault: Fault) -> int:
        return sum(each.plan == str(fault) for each in self.fired())


def _fired(line: str) -> Fired:
    known: dict[str, Any] = json.loads(line)
    known.update(point=Point(known["point"]), action=Action(known["action"]))
    return Fired(**known)
