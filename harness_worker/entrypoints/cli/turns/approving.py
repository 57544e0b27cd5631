"""``harness turns approve`` and ``deny``."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from harness_worker.entrypoints.cli.options import Home, Turn, Url, running_at
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.cli.turns.decisions import arguments_from, decide
from harness_worker.entrypoints.cli.whole_ids import whole_id

Call: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="CALL", help="Which call, such as 0.1. [default: all that wait]", show_default=False),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the turn as it then is.")]


def approve(
    turn: Turn,
    call: Call = None,
    *,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it with these instead: a JSON object.")
    ] = None,
    url: Url = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Approve calls that wait for a person: one, or all of a turn and of the turns below it.

    \b
        harness turns list --status requires_action
        harness turns approve 9f4ec9b95092
        harness turns approve 9f4ec9b95092 0.1 --arguments '{"order_id": "1042"}'

    Exits with 1 if nothing waits for an answer any more.
    """  # noqa: D301 - click reads the \b
    given = arguments_from(arguments)
    with running_at(url, home) as client:
        _tell(decide(client, whole_id(client, turn), call, "approve", arguments=given), "approve", as_json=as_json)


def deny(
    turn: Turn,
    call: Call = None,
    *,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; the model reads it.")] = None,
    url: Url = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Deny calls that wait for a person: one, or all of a turn and of the turns below it.

    \b
        harness turns deny 9f4ec9b95092 0.2 --reason "ask the customer first"

    The turn goes on without them. Exits with 1 if nothing waits for an answer any more.
    """  # noqa: D301 - click reads the \b
    with running_at(url, home) as client:
        _tell(decide(client, whole_id(client, turn), call, "deny", reason=reason), "deny", as_json=as_json)


def _tell(turn: dict[str, object], decision: Literal["approve", "deny"], *, as_json: bool) -> None:
    if as_json:
        write_json(turn)
    else:
        write(f"{turn['id']}  {'approved' if decision == 'approve' else 'denied'}")
