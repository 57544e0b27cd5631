"""A Lua script's Python signature is its contract: what it declares is what Lua sees and what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from harness_worker.adapters.redis import contracts
from harness_worker.adapters.redis._lua import Script
from harness_worker.errors import InvariantError


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a sequence."""

    name: str
    size: int


def everything(key: str, name: str, size: int, flag: bool, rows: Sequence[Row]) -> int:
    """A contract with one parameter of each kind."""
    ...


def test_signature_becomes_the_locals_of_the_script() -> None:
    """Lua reads each argument under its Python name and with its type."""
    text = Script("close", everything).text
    assert text.startswith(
        "local key = KEYS[1]\n"
        "local name = ARGV[1]\n"
        "local size = tonumber(ARGV[2])\n"
        "local flag = (ARGV[3] == '1')\n"
        "local rows = {}\n"
        "for i = 4, #ARGV, 2 do rows[#rows + 1] = {name = ARGV[i + 0], size = tonumber(ARGV[i + 1])} end\n"
    )


def test_arguments_are_sent_in_the_order_of_the_signature() -> None:
    """By position or by name, a call becomes the same command."""
    script = Script("close", everything)
    sent = script("k", "n", 2, True, [Row("a", 1), Row("b", 2)])
    assert sent.by_name == ("EVALSHA", script.sha, 1, "k", "n", 2, 1, "a", 1, "b", 2)
    assert sent.in_full == ("EVAL", script.text, 1, "k", "n", 2, 1, "a", 1, "b", 2)
    assert script(rows=[Row("a", 1), Row("b", 2)], flag=True, key="k", size=2, name="n") == sent


def test_signature_that_lua_cannot_take_is_refused() -> None:
    """A type without an encoding is a bug that shows at once."""

    def broken(key: str, when: float) -> int: ...  # pyright: ignore[reportUnusedParameter]

    with pytest.raises(InvariantError, match="when"):
        _ = Script("close", broken).text


def test_every_script_file_has_a_contract() -> None:
    """No script is without a signature, and no signature without its script."""
    contracted: list[Script[..., Any]] = [value for value in vars(contracts).values() if isinstance(value, Script)]
    directory = files("harness_worker.adapters.redis").joinpath("scripts")
    written = {Path(file.name).stem for file in directory.iterdir()}
    assert {script.name for script in contracted} | {"_gate", "_lock"} == written
    assert len({script.sha for script in contracted}) == len(contracted)
