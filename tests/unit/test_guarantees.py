"""No claim without a test: what the page of guarantees names is there."""

from __future__ import annotations

from pathlib import Path

from tests.unit.named_tests import NAMED, wrongly_named

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "guarantees.md"


def test_guarantees_name_tests_that_exist() -> None:
    """Each test in the tables is a function of the file it is said to be in, and run by what is said to run it."""
    page = PAGE.read_text()
    assert len(NAMED.findall(page)) > 15
    assert wrongly_named(page) == []


def test_every_row_of_the_guarantees_names_a_test() -> None:
    """A row without a test is a claim."""
    rows = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| a tool d")
    ]
    claims = [row for row in rows if not row.startswith("| what goes wrong |")]
    assert [row for row in claims if not NAMED.search(row)] == []
