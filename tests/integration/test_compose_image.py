"""The image's build, run outside of a container: the commands of its stages, in directories of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.compose_file import COMPOSE, entrypoint, instructions

ROOT: Final = COMPOSE.parent
BUILD_TIMEOUT_S: Final = 900

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(2 * BUILD_TIMEOUT_S)]


def run(command: str, directory: Path, venv: Path) -> str:
    """The output of a shell command that can use the programs of ``venv``."""
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


def copy(rest: str, to: Path) -> None:
    """Do what a COPY of the first stage does."""
    *sources, _ = rest.split()
    for source in sources:
        place = to / source
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, place)


def test_image_stages_make_a_program_that_runs(tmp_path: Path) -> None:
    """The wheels are built from what is copied, install without a registry, and contain every file needed."""
    source, wheels, venv = tmp_path / "src", tmp_path / "wheels", tmp_path / "venv"
    source.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    second = instructions().index(("FROM", "python:3.12-slim"))
    for instruction, rest in instructions()[:second]:
        match instruction:
            case "COPY":
                copy(rest, source)
            case "RUN":
                run(rest.replace("/wheels", str(wheels)), source, venv)
            case _:
                assert instruction in ("FROM", "WORKDIR")
    install = instructions()[second + 1][1].replace("/wheels", str(wheels))
    run(install.partition("target=")[2].partition(" ")[2], tmp_path, venv)
    (program,) = entrypoint()
    shop = "harness_worker.demo.shop:registry"
    assert {"agent-harness", "mcp", "opentelemetry-sdk", "s3fs"} <= set(run("pip list", tmp_path, venv).split())
    answer = run(f"{program} run Hello --app {shop} --home {tmp_path / 'home'}", tmp_path, venv)
    assert "I am a recording" in answer
