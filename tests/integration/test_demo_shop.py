"""The demonstration's shop, opened by several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

EVERYBODY: Final = 3


def test_shop_is_made_once_by_many_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that open a new shop at the same moment all find it complete."""
    monkeypatch.setenv("HARNESS_HOME", str(tmp_path))
    code = "from harness_worker.demo import shop; print(len(shop.search_products('kettle')))"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(EVERYBODY)
    ]
    assert [process.communicate(timeout=60)[0] for process in started] == ["2\n"] * EVERYBODY
    assert (tmp_path / "shop.db").exists()
