"""What is to go wrong where: ``after_effect=kill_child; in_reconciler=hang(8):0.01*3``.

Faults are separated by semicolons or line breaks. Each is ``POINT=ACTION``, optionally followed by a duration in
seconds in parentheses, by ``:`` and a probability, and by ``*`` and how often it strikes at most, over all processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from harness_worker.errors import ConfigError
from harness_worker.faults.points import Point

PLAN_FILE: Final = "plan"
_FAULT: Final = re.compile(
    r"(?P<point>\w+)=(?P<action>\w+)(\((?P<seconds>[\d.]+)\))?(:(?P<chance>[\d.]+))?(\*(?P<times>\d+))?"
)


class Action(StrEnum):
    """What happens at a boundary."""

    RAISE = "raise"
    """The service at the boundary does not answer."""
    HANG = "hang"
    """The thread at the boundary goes on only after some seconds."""
    KILL_CHILD = "kill_child"
    """SIGKILL for the process at the boundary: a pool process, or a worker's only one."""
    KILL_WORKER = "kill_worker"
    """SIGKILL for that process's worker, the parent of the pool."""
    STOP_CHILD = "stop_child"
    """SIGSTOP for the process at the boundary, and SIGCONT some seconds later."""
    STOP_WORKER = "stop_worker"
    """The same for that process's worker with all pool processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is to go wrong.

    Args:
        point: The boundary.
        action: What happens there.
        seconds: How long a ``HANG`` or a stop lasts.
        chance: Its probability each time the boundary is reached, from 0 to 1.
        times: How often it strikes at most, over all processes; ``None``: any number of times.
    """

    point: Point
    action: Action
    seconds: float = 1.0
    chance: float = 1.0
    times: int | None = None

    def __str__(self) -> str:
        often = "" if self.times is None else f"*{self.times}"
        return f"{self.point}={self.action}({self.seconds:g}):{self.chance:g}{often}"


def parse_plan(text: str) -> tuple[Fault, ...]:
    """The faults that ``text`` describes.

    Raises:
        ConfigError: A part of it is not a fault; the message says which, and what is allowed.
    """
    return tuple(_fault(part.strip()) for part in re.split(r"[;\n]", text) if part.strip())


def write_plan(directory: Path, faults: Iterable[Fault]) -> None:
    """Have these faults strike from now on, and no others; the plan is replaced atomically."""
    fresh = directory / f"{PLAN_FILE}.new"
    fresh.write_text("\n".join(map(str, faults)))
    os.replace(fresh, directory / PLAN_FILE)


def _fault(part: str) -> Fault:
    found = _FAULT.fullmatch(part)
    if found is None:
        raise ConfigError(f"HARNESS_FAULTS: {part!r} is not POINT=ACTION(seconds):chance*times")
    try:
        return Fault(
            point=Point(found["point"]),
            action=Action(found["action"]),
            seconds=float(found["seconds"] or 1.0),
            chance=float(found["chance"] or 1.0),
            times=int(found["times"]) if found["times"] else None,
        )
    except ValueError as wrong:
        raise ConfigError(f"HARNESS_FAULTS: {part!r}: {wrong}") from None
