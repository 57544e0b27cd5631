"""``harness sweep run`` as a user runs it: in a process of its own, with real stacks and databases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness_worker.entrypoints.stack import open_stack
from tests.stacks import run_here

CLI = [sys.executable, "-m", "harness_worker.entrypoints.cli", "sweep", "run"]
WITHOUT = (
    "import sys; sys.modules[{package!r}] = None; from harness_worker.entrypoints.cli import main; sys.exit(main())"
)


def _sweep(*arguments: str, database_url: str | None = None) -> subprocess.CompletedProcess[str]:
    given = {"HARNESS_DATABASE_URL": database_url} if database_url else {}
    return subprocess.run(
        [*CLI, *arguments], env={**os.environ, **given}, capture_output=True, text=True, timeout=110, check=False
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.one_database("postgres")
def test_sweep_over_http_equals_the_plain_replay(database_url: str, tmp_path: Path):
    """With a stack of its own and four tool processes every task passes, and the files say what happened."""
    effects, observations = tmp_path / "effects.jsonl", tmp_path / "observations.jsonl"
    ended = _sweep(
        *("tau2-retail", "--half", "dev", "--limit", "4", "--home", str(tmp_path / "home"), "--json"),
        *("--effects", str(effects), "--observations", str(observations)),
        database_url=database_url,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["tasks"], found["expected"], found["passed"]) == (4, 4, 4)
    assert (found["effects_missing"], found["effects_extra"], found["effects_out_of_order"]) == (0, 0, 0)
    assert found["waves"] == found["ideal_waves"] < found["calls"]
    assert len(_lines(observations)) == found["calls"]
    journal = _lines(effects)
    assert len(journal) == found["effects"] > 0
    assert len({row["idempotency_key"] for row in journal}) == len(journal)


@pytest.mark.acceptance
def test_sweep_finds_the_places_of_a_running_stack(tmp_path: Path):
    """Given only a URL, the sweep finds and reads the state that this stack's tools wrote."""
    home = tmp_path / "home"
    app = "harness_worker.workloads.tau2.retail_app:registry"
    with open_stack(home=home, app=app, coordinators=1, tools=1, env={"HARNESS_HOME": str(home)}) as stack:
        ended = _sweep("tau2-retail", "--half", "dev", "--limit", "2", "--url", stack.gateway_url, "--json")
        unserved = _sweep("tau2-airline", "--url", stack.gateway_url)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["effects"] > 0
    assert unserved.returncode == 2
    assert "has no agent tau2-airline" in unserved.stderr


@pytest.mark.one_database("sqlite")
def test_sweep_in_one_process_equals_the_plain_replay(database_url: str, tmp_path: Path):
    """The result is the same through ``AgentHarness.run_turn``, without a stack."""
    ended = _sweep(
        *("tau2-airline", "--half", "dev", "--limit", "4", "--via", "inprocess", "--home", str(tmp_path), "--json"),
        database_url=database_url,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["expected"], found["passed"]) == (4, 4)


@pytest.mark.acceptance
def test_sweep_of_a_category_equals_the_plain_replay(tmp_path: Path):
    """Calls of unknown effect have a wave each, a user's turn is one message, and long outputs are artifacts."""
    observations = tmp_path / "observations.jsonl"
    ended = _sweep(
        *("bfcl-multi-turn", "--category", "long_context", "--half", "dev", "--limit", "3"),
        *("--home", str(tmp_path / "home"), "--json", "--observations", str(observations)),
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["tasks"], found["expected"], found["passed"]) == (3, 3, 3)
    assert found["waves"] == found["calls"] > found["effects"] > 0
    assert all(line["effect"] is None for line in _lines(observations))
    assert any(line["position"] > 0 for line in _lines(observations))


def test_sweep_says_that_nothing_answers(tmp_path: Path):
    """If no gateway is at the URL, there is a message, and the exit code is 3."""
    ended = run_here("sweep", "run", "tau2-retail", "--url", "http://127.0.0.1:9", "--home", str(tmp_path))
    assert ended.returncode == 3
    assert "nothing answers at http://127.0.0.1:9" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["tau3"],
        ["tau2-retail", "--half", "third"],
        ["tau2-retail", "--limit", "0"],
        ["tau2-airline", "--category", "base"],
        ["bfcl-multi-turn", "--category", "short"],
    ],
)
def test_sweep_refuses_wrong_usage(arguments: list[str], tmp_path: Path):
    """An unknown workload or a bad option exits with 2."""
    ended = run_here("sweep", "run", *arguments, "--home", str(tmp_path))
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("option", ["--effects", "--observations"])
def test_sweep_looks_first_whether_it_can_write(option: str, tmp_path: Path):
    """If it cannot, it exits with 2 before a stack is started."""
    ended = run_here("sweep", "run", "tau2-retail", option, str(tmp_path), "--home", str(tmp_path / "home"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"harness: {option} {tmp_path}: Is a directory\n"
    assert not (tmp_path / "home").exists()


def test_sweep_tells_its_result_although_a_file_is_lost(tmp_path: Path):
    """If the disk fills up meanwhile, the file is lost, but the figures are printed."""
    ended = _sweep(
        *("tau2-retail", "--half", "dev", "--limit", "2", "--via", "inprocess", "--home", str(tmp_path), "--json"),
        *("--effects", "/dev/full"),
    )
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["tasks"] == 2
    assert "No space left on device" in ended.stderr


def test_sweep_writes_its_files_although_nobody_reads_its_result(tmp_path: Path):
    """If stdout cannot be written, the figures are lost, but the files are written."""
    effects, observations = tmp_path / "effects.jsonl", tmp_path / "observations.jsonl"
    options = ("--half", "dev", "--limit", "2", "--via", "inprocess", "--home", str(tmp_path))
    files = ("--effects", str(effects), "--observations", str(observations))
    with open("/dev/full", "w") as full:
        ended = subprocess.run([*CLI, "tau2-retail", *options, *files], stdout=full, timeout=110, check=False)
    assert ended.returncode != 0
    assert _lines(effects)
    assert _lines(observations)


@pytest.mark.parametrize(("workload", "package"), [("tau2-retail", "tau2"), ("bfcl-multi-turn", "bfcl_eval")])
def test_sweep_says_how_to_install_what_is_missing(workload: str, package: str, tmp_path: Path):
    """Without the package it prints the command that installs it, and exits with 2."""
    command = [sys.executable, "-c", WITHOUT.format(package=package), "sweep", "run", workload, "--home", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "install the harness with its extra 'workloads' (in its checkout: .ci/install workloads)" in ended.stderr
