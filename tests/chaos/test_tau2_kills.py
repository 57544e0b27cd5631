"""tau2 with a tool process killed every two seconds: the same result, nothing twice, nothing lost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from harness_worker.entrypoints.stack import running_stack

KILL_EVERY_S = 2.0


class Killer(threading.Thread):
    """Kills one child of the stack's tool pool every so often, while the stack runs."""

    def __init__(self, home: Path, seed: int) -> None:
        super().__init__(name="killer", daemon=True)
        self._home = home
        self._choice = random.Random(seed)  # noqa: S311 - which process dies is no secret
        self._over = threading.Event()
        self.kills = 0

    def run(self) -> None:
        """Until :meth:`stop`."""
        while not self._over.wait(KILL_EVERY_S):
            self.kills += self._kill_one()

    def stop(self) -> None:
        """Kill no more."""
        self._over.set()
        self.join()

    def _kill_one(self) -> int:
        stack = running_stack(self._home)
        parents = [process.pid for process in stack.processes if process.role == "tools"] if stack else []
        try:
            children = [child for pid in parents for child in psutil.Process(pid).children()]
            alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
            if alive:
                self._choice.choice(alive).kill()
        except psutil.NoSuchProcess:
            return 0
        return len(alive[:1])


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_tau2_survives_killed_tool_processes(database_url: str, tmp_path: Path):
    """Two coordinator threads, four tool processes, eight turns in flight: all tasks equal the plain replay."""
    killer = Killer(tmp_path / "home", seed=1)
    killer.start()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "harness_worker.entrypoints.cli", "sweep", "run", "tau2-retail"),
            *("--half", "dev", "--home", str(tmp_path / "home"), "--json"),
        ],
        env={**os.environ, "HARNESS_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    killer.stop()
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    found = json.loads(ended.stdout)
    assert found["passed"] == found["expected"] > 50
    assert (found["effects_missing"], found["effects_extra"], found["effects_out_of_order"]) == (0, 0, 0)
    assert killer.kills > 3
