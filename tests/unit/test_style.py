"""The code keeps to its own style, as ``make check`` has it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
RUFF: Final = (sys.executable, "-m", "ruff")
ABROAD: Final = re.compile(r'\xa7 ?\d|[Dd]ocuments? \d{3}|contracts(?:\.md)?, "|contracts\.md|[(]issue of|\.\./shared')
"""How a text would cite what is not in the repository."""


@pytest.mark.parametrize("command", [("check", "--output-format=concise"), ("format", "--check")], ids=lambda c: c[0])
def test_ruff_finds_nothing(command: tuple[str, ...]) -> None:
    """Ruff has no complaint about any file, and would format none of them differently."""
    ran = subprocess.run([*RUFF, *command, "."], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_texts_cite_nothing_that_is_not_here() -> None:
    """Whoever reads a comment, a docstring or a page can look up what it points at."""
    tops = [ROOT / name for name in ("api_gateway", "compose", "docs", "harness_worker", "tests")]
    texts = [file for kind in ("md", "py", "lua", "toml", "yaml") for top in tops for file in top.rglob(f"*.{kind}")]
    texts += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    found = {str(file.relative_to(ROOT)): ABROAD.findall(file.read_text()) for file in texts}
    assert len(found) > 500
    assert {name: cited for name, cited in found.items() if cited} == {}
