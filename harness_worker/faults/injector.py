"""Injects faults at the boundaries that a plan names."""

from __future__ import annotations

import os
import random
from pathlib import Path

from harness_worker.faults.actions import act
from harness_worker.faults.ledger import Ledger
from harness_worker.faults.plan import PLAN_FILE, Fault, parse_plan
from harness_worker.faults.points import Point


class Faults:
    """Asked at every boundary whether a fault strikes; to be made in the worker's parent process.

    Args:
        directory: Has the plan, which is read again at each boundary, and gets the record of strikes.
    """

    def __init__(self, directory: Path) -> None:
        self._plan = directory / PLAN_FILE
        self._ledger = Ledger(directory)
        self._worker_pid = os.getpid()
        self._chance = random.SystemRandom()  # pool processes must not inherit the same sequence

    def strike(self, point: Point) -> None:
        """Carry out what the plan has for this boundary, if anything.

        Raises:
            InjectedFault: According to the plan, the service at this boundary does not answer.
        """
        for fault in self._planned(point):
            if self._chance.random() < fault.chance and self._ledger.claim(fault):
                act(fault, worker_pid=self._worker_pid)

    def _planned(self, point: Point) -> list[Fault]:
        text = self._plan.read_text() if self._plan.exists() else ""
        return [fault for fault in parse_plan(text) if fault.point is point]
