from __future__ import annotations

import inspect
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from harness_worker.errors import InvariantError
from harness_worker.workloads.bfcl.notation import json_schema, recorded_call
from harness_worker.workloads.bfcl.snapshot import freeze, thaw


class Leaf:
    """A file: a name and a time that nobody reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._touched = datetime(2024, 9, 1, 10, 30, tzinfo=UTC)


class Tree:
    """Holds itself, a part twice, keys that are no strings, and a generator."""

    def __init__(self) -> None:
        shared = Leaf("a")
        self.leaves: dict[Any, Any] = {1: shared, (2, "b"): [shared, Leaf("c")], "ids": {3, 20, 100}}
        self.numbers = [0, 0.0, True, None, 1e300, ...]
        self.itself = self
        self._random = random.Random(7)  # noqa: S311 - what it gives has to be brought back


def _method(self: object, source: str, destination: str = "", *, deep: bool = False) -> None:
    """For its signature."""


SIGNATURES = {"mv": inspect.signature(_method)}


def test_recorded_call_names_every_argument():
    """Arguments by place get the names of the method's parameters; literals of every kind are read."""
    call = recorded_call(" mv('a', destination='b', deep=True)", SIGNATURES)
    assert (call.tool, call.arguments, call.is_read) == (
        "mv",
        {"source": "a", "destination": "b", "deep": True},
        False,
    )


@pytest.mark.parametrize(
    "text", ["rm('a')", "mv(open('/etc/passwd'))", "mv(__import__('os').getcwd())", "a.mv('b')", "mv(**{})", "'mv'"]
)
def test_recorded_call_never_runs_text(text: str):
    """What is no call of a known method with literal arguments is refused, not evaluated."""
    with pytest.raises(ValueError, match=r"not a call|malformed|not spelled out"):
        recorded_call(text, SIGNATURES)


def test_json_schema_mends_types_and_keeps_names():
    """Python's types become JSON's, "any" says nothing, and a property called "type" stays one."""
    document = {
        "type": "dict",
        "properties": {
            "type": {"type": "float", "description": "dict"},
            "at": {"type": "tuple", "items": {"type": "any"}},
        },
        "required": ["type"],
    }
    assert json_schema(document) == {
        "type": "object",
        "properties": {"type": {"type": "number", "description": "dict"}, "at": {"type": "array", "items": {}}},
        "required": ["type"],
    }


def test_snapshot_brings_an_instance_back_whole():
    """Types of numbers and keys, shared parts, cycles and what the generator gives next are as they were."""
    tree = Tree()
    again = thaw(Tree, freeze(tree))
    assert repr(again.numbers) == repr(tree.numbers)
    assert again.itself is again
    assert again.leaves[1] is again.leaves[2, "b"][0]
    assert again.leaves["ids"] == {3, 20, 100}
    assert again._random.random() == vars(tree)["_random"].random()


def test_snapshot_is_equal_for_equal_states():
    """A snapshot brought back gives the same text; a draw of the generator or a changed leaf another."""
    tree = Tree()
    text = freeze(tree)
    assert freeze(thaw(Tree, text)) == text
    tree.leaves[1]._touched = datetime(2025, 1, 1, tzinfo=UTC)
    assert freeze(tree) == text
    vars(tree)["_random"].random()
    drawn = freeze(tree)
    tree.leaves[1].name = "z"
    assert len({text, drawn, freeze(tree)}) == 3


def test_snapshot_refuses_what_it_does_not_know():
    """Something that it could not bring back is an error, not a loss."""
    tree = Tree()
    tree.leaves["raw"] = b"bytes"
    with pytest.raises(InvariantError, match="bytes"):
        freeze(tree)
