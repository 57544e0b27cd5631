"""tau2 while a tool process is killed every two seconds: the same result, nothing done twice, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.killer import Killer, pool_children


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_tau2_survives_killed_tool_processes(database_url: str, tmp_path: Path):
    """Two coordinator threads, four tool processes, eight turns in flight: all tasks give what a plain replay does."""
    with Killer(tmp_path / "home", pool_children, every_s=2.0, seed=1) as killer:
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
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    found = json.loads(ended.stdout)
    assert found["passed"] == found["expected"] > 50
    assert (found["effects_missing"], found["effects_extra"], found["effects_out_of_order"]) == (0, 0, 0)
    assert killer.kills > 3
