"""``harness turns``: list, show, follow, cancel, fork and answer the turns of a running stack."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import GatewayClient
from harness_worker.client.following import is_hint
from harness_worker.config import load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.options import (
    After,
    Home,
    OfAgent,
    OfSession,
    OfStatus,
    PageAsJson,
    PageLimit,
    Quiet,
    Turn,
    Url,
    WithMetadata,
    pairs,
    running_at,
)
from harness_worker.entrypoints.cli.output import console, write, write_json
from harness_worker.entrypoints.cli.pages import print_page
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.entrypoints.cli.turns.approving import approve, deny
from harness_worker.entrypoints.cli.turns.cancelling import Cancelled, cancel_open_turns, cancel_turns
from harness_worker.entrypoints.cli.turns.forking import fork
from harness_worker.entrypoints.cli.turns.prompting import prompting
from harness_worker.entrypoints.cli.whole_ids import whole_id
from harness_worker.entrypoints.view.figures import counted
from harness_worker.entrypoints.view.lines import marks_for, totals
from harness_worker.entrypoints.view.screen import Screen
from harness_worker.entrypoints.view.turn_facts import took_s
from harness_worker.entrypoints.view.turn_page import TurnPage
from harness_worker.entrypoints.view.turn_table import turn_table
from harness_worker.entrypoints.view.watch import Watcher
from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject, TurnStatus

app = typer.Typer(
    no_args_is_help=True,
    help="""Look at turns, stop them, fork them, and answer those that wait.

    A turn is named by its id, or by the end of its id that `list` shows. All commands talk to the stack at --url, else
    to the one that runs in --home.

    \b
        harness turns list --status running
        harness turns show 9f4ec9b95092
        harness turns tail 9f4ec9b95092
        harness turns cancel 9f4ec9b95092
        harness turns approve 9f4ec9b95092 0.1
        harness turns fork 9f4ec9b95092 --from-step 3
    """,
)


@app.command("list", short_help="Turns, newest first.")
def list_(  # noqa: PLR0913 - one parameter an option
    *,
    status: OfStatus = None,
    session: OfSession = None,
    agent: OfAgent = None,
    metadata: WithMetadata = None,
    limit: PageLimit = 20,
    after: After = None,
    url: Url = None,
    home: Home = None,
    quiet: Quiet = False,
    as_json: PageAsJson = False,
) -> None:
    """Turns, newest first.

    \b
        harness turns list --status failed --metadata customer=1042
        harness turns cancel --metadata customer=1042
    """  # noqa: D301 - click reads the \b
    narrowed = {"status": status, "session_id": session, "agent": agent, "metadata": pairs(metadata or [])}
    with running_at(url, home) as client:
        page = client.turns_page(**narrowed, after=after, limit=limit)
    print_page(page, "turns", turn_table, quiet=quiet, as_json=as_json)


@app.command(short_help="Show one turn with its waves and calls.")
def show(
    turn: Turn,
    *,
    messages: Annotated[bool, typer.Option("--messages", help="Also show the history, as the model saw it.")] = False,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the turn as the gateway gives it.")] = False,
) -> None:
    """Show one turn: its steps with their waves and calls, the time and cost of each, the answer and the scores."""
    with running_at(url, home) as client:
        turn_id = whole_id(client, turn)
        wanted = {"messages": messages, "scores": not as_json}
        found = client.turn(turn_id, *(part for part, is_wanted in wanted.items() if is_wanted))
        events = [] if as_json else list(client.events(turn_id, follow=False))
    if as_json:
        write_json(found)
        return
    out = console()
    page = TurnPage(out.width, marks_for(out.encoding))
    for line in (*page.draw(found, events), *(page.messages(found) if messages else ())):
        out.print(line, soft_wrap=True)


@app.command(short_help="Follow a turn live until it ends.")
def tail(
    turn: Turn,
    *,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="With --json: only events with a higher seq.")] = 0,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a JSON line, as it comes.")] = False,
) -> None:
    """Follow a turn live until it ends. Exits with 0 if it completed, else with 1."""
    with running_at(url, home) as client:
        turn_id = whole_id(client, turn)
        options = Addresses(load_settings(home=home, gateway_url=url)).options
        client.turn(turn_id)  # report a wrong id, or an absent gateway, at once
        ended = _print_events(client, turn_id, after) if as_json else _draw(client, turn_id, options)
    raise typer.Exit(0 if ended["status"] == TurnStatus.COMPLETED else 1)


@app.command(short_help="Stop turns.")
def cancel(
    turns: Annotated[
        list[str] | None, typer.Argument(metavar="TURNS", help="Their ids, or the ends of them.", show_default=False)
    ] = None,
    *,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Instead, all with KEY=VALUE in their metadata; may be repeated."),
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, max=600, help="Seconds to wait for their ends.")
    ] = 5.0,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {data: [turn, …]} as they then are.")] = False,
) -> None:
    """Stop turns: the model call, the tools that run, and those that wait.

    \b
        harness turns cancel 9f4ec9b95092
        harness turns cancel --metadata sweep=cases-cb89fbcc

    The second stops every unfinished turn with this metadata; that there is none is no error.

    Exits with 0 once all of them have ended, with 1 if one has not yet.
    """  # noqa: D301 - click reads the \b
    if bool(turns) is bool(metadata):
        raise ConfigError("give the ids of turns, or --metadata KEY=VALUE for all that have it and are not over")
    kept = pairs(metadata or [])
    with running_at(url, home) as client:
        if kept:
            ended = cancel_open_turns(client, SystemClock(), kept, wait_s)
        else:
            ids = list(dict.fromkeys(whole_id(client, turn) for turn in turns or []))
            ended = cancel_turns(client, SystemClock(), ids, wait_s)
    if as_json:
        write_json({"data": [each.turn for each in ended]})
    else:
        for each in ended:
            write(_told(each))
    if kept:
        tell(f"{counted(len(ended), 'turn')} told to stop" if ended else "no turn with this metadata is open")
    raise typer.Exit(0 if all(each.is_over for each in ended) else 1)


app.command(short_help="Approve calls that wait for a person.")(approve)
app.command(short_help="Deny calls that wait for a person.")(deny)
app.command(short_help="Continue from a step of a turn in another way.")(fork)


def _print_events(client: GatewayClient, turn_id: str, after: int) -> JsonObject:
    gateway = client.with_patience()
    for event in gateway.events(turn_id, after):
        if not is_hint(event):
            write_json(event)
    return gateway.turn(turn_id)


def _draw(client: GatewayClient, turn_id: str, options: str) -> JsonObject:
    clock, out = SystemClock(), console()
    with Screen(out, clock.monotonic) as screen:
        ended = Watcher(client, clock, prompting(out, clock, ask=False, options=options)).follow(turn_id, screen)
    out.print(f"  {totals(ended, took_s(ended))}", style="bold", soft_wrap=True)
    return ended


def _told(cancelled: Cancelled) -> str:
    status = cancelled.turn["status"]
    if not cancelled.is_over:
        return f"{cancelled.turn['id']}  {status}: told to stop, and not over yet"
    return f"{cancelled.turn['id']}  {status}{' already' if cancelled.was_over else ''}"
