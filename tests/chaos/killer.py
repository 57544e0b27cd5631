"""Kills processes of a running stack, one at a time, at regular intervals."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from harness_worker.entrypoints.stack import StackInfo, running_stack

Victims = Callable[[StackInfo], list[psutil.Process]]


def workers(stack: StackInfo) -> list[psutil.Process]:
    """The coordinator and the tool worker, that is, the parent of its pool."""
    return [psutil.Process(each.pid) for each in stack.processes if each.role in ("coordinator", "tools")]


def pool_children(stack: StackInfo) -> list[psutil.Process]:
    """The processes that run tools."""
    parents = [each.pid for each in stack.processes if each.role == "tools"]
    return [child for pid in parents for child in psutil.Process(pid).children()]


class Killer(threading.Thread):
    """Kills one of a stack's processes with SIGKILL at regular intervals, while the stack runs.

    Args:
        home: The stack's home.
        victims: Finds the processes to choose from.
        every_s: Seconds between two kills.
        seed: Decides which process dies.
        for_s: Seconds after which it stops by itself.
    """

    def __init__(self, home: Path, victims: Victims, *, every_s: float, seed: int, for_s: float = float("inf")) -> None:
        super().__init__(name="killer", daemon=True)
        self._home = home
        self._victims = victims
        self._every_s = every_s
        self._for_s = for_s
        self._choice = random.Random(seed)  # noqa: S311 - which process dies is no secret
        self._over = threading.Event()
        self.kills = 0

    def run(self) -> None:
        """Kill until the time is over or :meth:`stop` is called."""
        over_at = time.monotonic() + self._for_s
        while time.monotonic() < over_at and not self._over.wait(self._every_s):
            self.kills += self._kill_one()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop killing."""
        self._over.set()
        self.join()

    def _kill_one(self) -> int:
        stack = running_stack(self._home)
        try:
            alive = [each for each in self._victims(stack) if _lives(each)] if stack else []
            if alive:
                self._choice.choice(alive).kill()
        except psutil.NoSuchProcess:
            return 0
        return len(alive[:1])


def _lives(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE
