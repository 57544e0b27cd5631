"""Commands that are imported only when called, so that a worker does not load what a sweep needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from harness_worker.entrypoints.cli.bad_values import words_for
from harness_worker.entrypoints.loading import loading


@dataclass(frozen=True, slots=True, kw_only=True)
class Lazy:
    """One command.

    Args:
        name: Its name.
        where: ``module:attribute`` of its function, or of its ``typer.Typer`` if it has commands of its own.
        help: Its line in the list of commands.
    """

    name: str
    where: str
    help: str

    def load(self) -> Any:  # noqa: ANN401 - a click command; typer brings its own click
        """Import it."""
        module, _, attribute = self.where.partition(":")
        with loading():
            found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            found.rich_markup_mode = None
            return typer.main.get_group(found)
        alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
        alone.command(name=self.name)(found)
        return typer.main.get_command(alone)


def lazy_group(commands: Sequence[Lazy]) -> type[TyperGroup]:
    """A group class with these commands, in this order."""
    known = {command.name: command for command in commands}

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - click's own signature
            return list(known)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - click's own signature
            return known[cmd_name].load() if cmd_name in known else None

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's own signature
            with loading():  # for its first parameter, typer imports pydantic
                return super().parse_args(ctx, args)

        def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own signature
            try:
                return super().invoke(ctx)
            except typer.BadParameter as wrong:
                wrong.message = words_for(wrong)
                raise

        def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - click's own signature
            with formatter.section("Commands"):
                formatter.write_dl([(each.name, each.help) for each in commands])

    return LazyGroup
