"""What the command line takes, whatever the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner

from harness_worker.entrypoints.cli import program
from harness_worker.errors import ConfigError

NEEDED: Final = {"harness eval": ["cases.jsonl"], "harness turns cancel": ["turn"]}
"""What a command has to be told besides."""


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a click command
    """Every command that does something, by its whole name."""
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    for each in command.list_commands(None):
        yield from commands(f"{name} {each}", command.get_command(None, each))


FRACTIONS: Final = [
    (name, option.opts[0])
    for name, command in commands("harness", typer.main.get_command(program.app))
    for option in command.params
    if "float" in str(option.type_descriptor.annotation)
]


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize(("name", "option"), FRACTIONS)
def test_number_without_an_end_is_wrong_usage(name: str, option: str, number: str) -> None:
    """Seconds that never pass are a mistake, and are told as one before anything is done."""
    ran = CliRunner().invoke(program.app, [*name.split()[1:], *NEEDED.get(name, []), option, number])
    assert ran.exit_code == 2, ran.output
    assert f"Invalid value for '{option}'" in ran.output


def test_dash_is_stdin() -> None:
    """Of eval as of batches create: what is wrong with it is told, and nothing is asked."""
    for command, words in {"eval -": "-: nothing was asked", "batches create -": "-:1: not JSON"}.items():
        ran = CliRunner().invoke(program.app, command.split(), input="{")
        assert isinstance(ran.exception, ConfigError)
        assert str(ran.exception).startswith(words)


def test_there_are_commands_that_take_seconds() -> None:
    """Else nothing was looked at."""
    assert ("harness eval", "--timeout") in FRACTIONS
    assert len(FRACTIONS) >= 4
