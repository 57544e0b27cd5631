"""The page on operating shows a command that backs up the database of a stack that goes on."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.stacks import ROOT

PAGE: Final = (ROOT / "docs" / "how-to" / "operate.md").read_text()
SECTION: Final = PAGE.partition("\n## Back up\n")[2].partition("\n## ")[0]


def test_backup_has_what_only_the_log_beside_the_file_has(tmp_path: Path, sqlite_template: Path) -> None:
    """The last commits, which somebody who copies the file by itself would lose, while another connection is open."""
    _, command = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    home = tmp_path / ".harness"
    home.mkdir()
    shutil.copy(sqlite_template, home / "harness.db")
    with closing(sqlite3.connect(home / "harness.db", isolation_level=None)) as worker:
        worker.execute("PRAGMA journal_mode=WAL")
        worker.execute("INSERT INTO sessions (tenant, id, turns, created_at) VALUES ('t', 'last', 1, 0)")
        assert (home / "harness.db-wal").stat().st_size > 0
        ran = ["bash", "-c", command.replace(".venv/bin/python", sys.executable)]
        subprocess.run(ran, cwd=tmp_path, check=True)
    with closing(sqlite3.connect(home / "backup.db")) as backup:
        assert backup.execute("SELECT id FROM sessions").fetchall() == [("last",)]
