"""The versions that ``make`` installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
PIN: Final = re.compile(r"(\S+)==(\S+)")


def test_each_requirement_is_pinned_within_its_bounds() -> None:
    """Else two installations of one commit differ, or cannot be made."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(pin[1]): pin[2] for line in lines if (pin := PIN.fullmatch(line))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: list[list[str]] = [*project["optional-dependencies"].values()]
    required = [Requirement(each) for each in sum(extras, start=project["dependencies"])]
    wanted = [each for each in required if each.name != project["name"]]
    assert [each for each in wanted if pinned.get(canonicalize_name(each.name), "0") not in each.specifier] == []
