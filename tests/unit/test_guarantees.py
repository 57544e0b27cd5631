"""No claim without a test: what the page of guarantees names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"
NAMED = re.compile(r"`((?:unit|contract|integration|e2e|chaos|hosts)/[\w/]+\.py)(?:::(\w+))?`")


def test_guarantees_name_tests_that_exist() -> None:
    """Each test in the tables is a function of the file it is said to be in."""
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 15
    for file, test in named:
        source = (ROOT / "tests" / file).read_text()
        assert not test or f"\ndef {test}(" in source, f"{file} has no {test}"


def test_every_row_of_the_guarantees_names_a_test() -> None:
    """A row without a test is a claim."""
    rows = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| a tool d")
    ]
    claims = [row for row in rows if not row.startswith("| what goes wrong |")]
    assert [row for row in claims if not NAMED.search(row)] == []
