"""``harness run``: ask one question and watch the turn."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_worker.adapters.clock import SystemClock
from harness_worker.config import load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.asking import ask
from harness_worker.entrypoints.cli.options import AppToStart, StackHome, Url, pairs
from harness_worker.entrypoints.cli.output import console, write_json, write_words
from harness_worker.entrypoints.cli.target import Target, reach
from harness_worker.entrypoints.cli.turns.prompting import prompting


def run(  # noqa: PLR0913 - one parameter an option
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask the agent.", show_default=False)],
    *,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="The agent to ask; may be left out if there is only one.")
    ] = None,
    url: Url = None,
    home: StackHome = None,
    app: AppToStart = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Continue this conversation.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="KEY=VALUE to store with the turn; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event, then the turn, as JSON lines.")] = False,
) -> None:
    """Ask an agent one question and watch its waves of tool calls.

    \b
        harness run "Where is my order 1042?" --agent support
        harness run "And 1043?" --agent support --session talk-7 --metadata user=ann

    The turn goes to the stack at --url, else to the one running in --home, else to one started for it with --app.
    If a call needs approval, you are asked on the terminal; without one, use `harness turns approve` or `deny`.
    Progress goes to stderr, the answer to stdout. Exits with 0 if the turn completed, else with 1.
    """  # noqa: D301 - click reads the \b
    settings = load_settings(home=home, app=app, gateway_url=url)
    body = {"input": question, "agent": agent, "session_id": session, "metadata": pairs(metadata or [])}
    screen = console(stderr=True)
    target = Target(command="harness run", settings=settings, app=app)
    with reach(target, lambda words: screen.print(words, style="dim", soft_wrap=True)) as client:
        answered = ask(
            client,
            body,
            screen,
            write_json if as_json else None,
            prompting(screen, SystemClock(), ask=not as_json, options=Addresses(settings).options),
        )
        if as_json:
            write_json(answered.turn)
        elif answered.turn["output_text"]:
            write_words(answered.turn["output_text"])
    raise typer.Exit(0 if answered.is_complete else 1)
