"""The tests that a page names: whether they are there, and whether it says which of them ``make test`` leaves out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
NAMED: Final = re.compile(r"`((?:\w+/)+\w+\.py)::(\w+)`( \(acceptance\))?")
"""File, function, and whether the page says that it belongs to ``make acceptance``."""

_LONG: Final = "pytest.mark.acceptance"


def wrongly_named(page: str) -> list[str]:
    """The tests of a page that are not there, or are marked otherwise than the page says."""
    return [f"{file}::{test}" for file, test, mark in NAMED.findall(page) if _is_long(file, test) is not bool(mark)]


def _is_long(file: str, test: str) -> bool | None:
    """Whether ``make test`` leaves the test out; ``None`` if there is no such test."""
    module = ast.parse((TESTS / file).read_text()).body
    found = [each for each in module if isinstance(each, ast.FunctionDef) and each.name == test]
    if not found:
        return None
    whole = [ast.unparse(each.value) for each in module if isinstance(each, ast.Assign) and _is_mark(each)]
    return any(_LONG in mark for mark in whole) or _LONG in map(ast.unparse, found[0].decorator_list)


def _is_mark(assignment: ast.Assign) -> bool:
    return ast.unparse(assignment.targets[0]) == "pytestmark"
