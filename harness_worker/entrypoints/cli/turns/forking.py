"""``harness turns fork``: continue from a step of a turn in another way."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from harness_worker.core.registration.agent_options import budget_problems
from harness_worker.entrypoints.cli.options import Home, Turn, Url, pairs, running_at
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.cli.whole_ids import whole_id
from harness_worker.errors import ConfigError


def fork(  # noqa: PLR0913 - one parameter an option
    turn: Turn,
    *,
    from_step: Annotated[
        int,
        typer.Option(
            "--from-step", metavar="N", min=0, help="The first step that is run anew; 0 starts from the beginning."
        ),
    ],
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Another agent.")] = None,
    text: Annotated[
        str | None, typer.Option("--input", metavar="TEXT", help="Another input; only with --from-step 0.")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="Another system text.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT=NUMBER", help="LIMIT=NUMBER, such as max_steps=12; may be repeated."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="KEY=VALUE to store instead of that turn's; may be repeated."),
    ] = None,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the new turn as the gateway gives it.")] = False,
) -> None:
    """Make a turn that continues from a step of another one, and print its id.

    It has that turn's history up to the step, in a session of its own, and runs none of it again. Options that are left
    out are as in that turn. The forked turn stays as it is, and need not have ended.

    \b
        harness turns show 9f4ec9b95092
        harness turns tail "$(harness turns fork 9f4ec9b95092 --from-step 3 --agent careful)"
        harness turns fork 9f4ec9b95092 --from-step 6 --budget max_steps=12
    """  # noqa: D301 - click reads the \b
    given: dict[str, Any] = {
        "agent": agent,
        "input": text,
        "system_prompt_override": system,
        "budget": _limits(budget or []),
        "metadata": pairs(metadata) if metadata else None,
    }
    with running_at(url, home) as client:
        made = client.fork_turn(whole_id(client, turn), from_step, **given)
    if as_json:
        write_json(made)
    else:
        write(made["id"])


def _limits(given: list[str]) -> dict[str, Any] | None:
    """``LIMIT=NUMBER`` strings as a budget; ``None`` if there are none.

    Raises:
        ConfigError: One of them is not a limit, or its value is not a number.
    """
    limits = {name: _number(value) for name, _, value in (pair.partition("=") for pair in given)}
    problems = "; ".join(budget_problems(limits))
    if problems:
        raise ConfigError(f"--budget: {problems}")
    return limits or None


def _number(text: str) -> object:
    """The number in a text; anything else stays text, which no limit accepts."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if math.isfinite(number) and number.is_integer() else number
