"""The image's build, run outside a container: its stages' own commands, in directories of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.compose_file import COMPOSE, dockerfile, entrypoint

ROOT: Final = COMPOSE.parent
BUILD_TIMEOUT_S: Final = 900

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(2 * BUILD_TIMEOUT_S)]


def run(command: str, directory: Path, venv: Path) -> str:
    """What a shell command prints, with the programs of ``venv``."""
    env = {**os.environ, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}
    ran = subprocess.run(
        ["sh", "-c", command],
        cwd=directory,
        env=env,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def copy_sources(to: Path) -> None:
    """What the first stage copies, and nothing else."""
    for source in [source for line in dockerfile("COPY") for source in line.split()[:-1]]:
        place = to / source
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)


def test_image_stages_make_a_program_that_runs(tmp_path: Path) -> None:
    """The wheels build from what is copied, install without a registry, and hold every file the program needs."""
    source, venv = tmp_path / "src", tmp_path / "venv"
    copy_sources(source)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    build, install = (step.replace("/wheels", str(tmp_path / "wheels")) for step in dockerfile("RUN")[:2])
    run(build, source, venv)
    run(install.partition("target=")[2].partition(" ")[2], tmp_path, venv)
    (program,) = entrypoint()
    shop = "harness_worker.demo.shop:registry"
    assert "agent-harness" in run("pip list", tmp_path, venv)
    answer = run(f"{program} run Hello --app {shop} --home {tmp_path / 'home'}", tmp_path, venv)
    assert "I am a recording" in answer
