"""The code keeps to its own style, as ``make check`` has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
RUFF: Final = (sys.executable, "-m", "ruff")


@pytest.mark.parametrize("command", [("check", "--output-format=concise"), ("format", "--check")], ids=lambda c: c[0])
def test_ruff_finds_nothing(command: tuple[str, ...]) -> None:
    """Ruff has no complaint about any file, and would format none of them differently."""
    ran = subprocess.run([*RUFF, *command, "."], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
