"""The versions that ``make`` installs."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PIN: Final = re.compile(r"(\S+)==(\S+)")
PYTHONS: Final = [
    {"python_full_version": version, "python_version": version.rpartition(".")[0], "extra": ""}
    for version in ("3.11.0", "3.11.9", "3.12.0", "3.13.0", "3.14.0")
]


def pins() -> dict[str, str]:
    """The pinned version of each package."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(pin[1]): pin[2] for line in lines if (pin := PIN.fullmatch(line))}


def test_each_requirement_is_pinned_within_its_bounds() -> None:
    """Else two installations of one commit differ, or cannot be made."""
    pinned = pins()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: list[list[str]] = [*project["optional-dependencies"].values()]
    required = [Requirement(each) for each in sum(extras, start=project["dependencies"])]
    wanted = [each for each in required if each.name != project["name"]]
    assert [each for each in wanted if pinned.get(canonicalize_name(each.name), "0") not in each.specifier] == []


def test_what_only_some_pythons_need_is_pinned_too() -> None:
    """Else what is installed there is whatever is newest that day."""
    pinned = pins()
    needed = {
        canonicalize_name(requirement.name)
        for package in distributions()
        if canonicalize_name(package.name) in pinned
        for requirement in map(Requirement, package.requires or [])
        if any(requirement.marker is None or requirement.marker.evaluate(python) for python in PYTHONS)
    }
    assert "async-timeout" in needed, "redis has asked for it before Python 3.11.3"
    assert needed - set(pinned) == set()
