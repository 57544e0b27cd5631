"""The page on testing shows tests that pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text())


def test_every_test_on_the_page_passes(tmp_path: Path) -> None:
    """Saved beside the README's agent and run by pytest as the page says."""
    (tmp_path / "notes.py").write_text(_blocks("README.md")[0])
    names = ("test_tools.py", "test_agent.py", "test_stack.py")
    for name, source in zip(names, _blocks("docs/how-to/test-your-agents.md"), strict=True):
        (tmp_path / name).write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", "."]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "6 passed" in ran.stdout, ran.stdout + ran.stderr
