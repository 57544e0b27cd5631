"""The database's revisions stand in one line, and say their place in it by their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from harness_worker.adapters.sql import migrations

VERSIONS: Final = sorted((Path(str(migrations.__file__)).parent / "versions").glob("r*.py"))
NUMBERS: Final = re.compile(r'^(?:down_)?revision: str(?: \| None)? = "?(\w+)"?$', re.MULTILINE)


def test_revisions_follow_each_other_one_by_one() -> None:
    """Two that claim the same place, as two changes made side by side do, would stop every start."""
    told = {file.name[1:5]: NUMBERS.findall(file.read_text()) for file in VERSIONS}
    places = [f"{number:04}" for number in range(1, len(VERSIONS) + 1)]
    assert told == {here: [here, before] for here, before in zip(places, ["None", *places], strict=False)}
