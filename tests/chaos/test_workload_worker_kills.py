"""Real workloads while whole workers are killed for a minute: the same result, nothing done twice, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness_worker.entrypoints.stack import open_stack
from tests.chaos.killer import Killer, workers

APPS = {
    "tau2-retail": "harness_worker.workloads.tau2.retail_app:registry",
    "tau2-airline": "harness_worker.workloads.tau2.airline_app:registry",
    "bfcl-multi-turn": "harness_worker.workloads.bfcl.app:registry",
}
KILLING_S = 60.0


def _sweep(workload: str, url: str, home: Path, database_url: str) -> dict[str, Any]:
    """Run one sweep of the development half on the stack, and return what the command prints."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "harness_worker.entrypoints.cli", "sweep", "run", workload),
            *("--half", "dev", "--url", url, "--home", str(home), "--json"),
        ],
        env={**os.environ, "HARNESS_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]
    return json.loads(ended.stdout)


@pytest.mark.acceptance
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workload", list(APPS))
def test_workload_survives_killed_workers(workload: str, database_url: str, tmp_path: Path):
    """The coordinator or the parent of the tool pool dies every five seconds for a minute: all tasks pass all the same.

    Sweeps are repeated until the minute is over, because a single one may end sooner.
    """
    home = tmp_path / "home"
    killer = Killer(home, workers, every_s=5.0, seed=2, for_s=KILLING_S)
    environment = {"HARNESS_HOME": str(home), "HARNESS_DATABASE_URL": database_url}
    with open_stack(home=home, app=APPS[workload], coordinators=2, tools=4, env=environment) as stack, killer:
        sweeps = [_sweep(workload, stack.gateway_url, home, database_url)]
        while killer.is_alive():
            sweeps.append(_sweep(workload, stack.gateway_url, home, database_url))
    for found in sweeps:
        assert found["passed"] == found["expected"] > 10
        assert (found["effects_missing"], found["effects_extra"], found["effects_out_of_order"]) == (0, 0, 0)
    assert killer.kills >= 8
