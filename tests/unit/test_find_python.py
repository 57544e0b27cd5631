"""Which Python makes the project's environment: ``.ci/find-python``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/find-python"


def add_python(directory: Path, name: str, version: tuple[int, int]) -> Path:
    """Put a Python on a search path that gives itself out for another version."""
    path = directory / name
    told = f"import sys; sys.version_info = ({version[0]}, {version[1]}, 0); exec(sys.argv[1])"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{told}' \"$2\"\n")
    path.chmod(0o755)
    return path


def find(directory: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Ask the script, with nothing else on its search path."""
    return subprocess.run(
        ["/bin/sh", str(SCRIPT)],
        env={"PATH": str(directory), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("version", [(3, 11), (3, 14)])
def test_the_default_python_is_taken_if_it_is_a_tested_version(tmp_path: Path, version: tuple[int, int]) -> None:
    """The default Python is preferred to every other that is tested."""
    default = add_python(tmp_path, "python3", version)
    assert find(tmp_path).stdout == f"{default}\n"


@pytest.mark.parametrize("version", [(3, 10), (3, 15)])
def test_another_is_taken_in_the_place_of_an_older_or_newer_default(tmp_path: Path, version: tuple[int, int]) -> None:
    """Where the default is too old or too new, a tested one beside it is taken."""
    add_python(tmp_path, "python3", version)
    other = add_python(tmp_path, "python3.12", (3, 12))
    assert find(tmp_path).stdout == f"{other}\n"


def test_a_machine_without_one_is_told_which_versions_serve(tmp_path: Path) -> None:
    """Without a tested Python the message names the versions, before anything is compiled."""
    add_python(tmp_path, "python3", (3, 15))
    found = find(tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("Python 3.11 to 3.14 with venv is needed, and none is on PATH")


def test_a_named_python_may_be_newer_but_not_older(tmp_path: Path) -> None:
    """Whoever names a newer Python may compile what has no wheels for it; an older one cannot work."""
    newer, older = add_python(tmp_path, "newer", (3, 15)), add_python(tmp_path, "older", (3, 10))
    assert find(tmp_path, PYTHON=str(newer)).stdout == f"{newer}\n"
    refused = find(tmp_path, PYTHON=str(older))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"PYTHON={older} does not run, is older than 3.11")
