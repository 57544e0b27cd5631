"""The page on testing shows tests that pass."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = "docs/how-to/test-your-agents.md"
BLOCK: Final = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page: str, language: str = "python") -> list[str]:
    return [body for kind, body in BLOCK.findall((ROOT / page).read_text()) if kind == language]


def test_every_test_on_the_page_passes(tmp_path: Path) -> None:
    """Saved beside the README's agent, in a clone, and run as the page says by a pytest without our plugins."""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "notes.py").write_text(_blocks("README.md")[0])
    names = ("test_tools.py", "test_agent.py", "test_stack.py")
    for name, source in zip(names, _blocks(PAGE), strict=True):
        (tmp_path / name).write_text(source)
    _, command = _blocks(PAGE, "sh")[0].splitlines()
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/python"
    plain = ["-p", "no:timeout", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-W", "error"]
    ran = subprocess.run(
        [sys.executable, *arguments, *plain], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert "6 passed" in ran.stdout, ran.stdout + ran.stderr
