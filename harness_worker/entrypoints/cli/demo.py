"""``harness demo``: start a stack, let the shop's agent answer three customers, and say where to look next."""

from __future__ import annotations

import shlex
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import GatewayClient
from harness_worker.config import Settings, load_settings
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.demo.conversations import CONVERSATIONS, Conversation
from harness_worker.demo.database import reset, shop_file
from harness_worker.demo.models import model_of
from harness_worker.entrypoints.cli.asking import FollowedTurn, ask
from harness_worker.entrypoints.cli.output import console as wide_console
from harness_worker.entrypoints.cli.target import Target, start
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.view.columns import MAX_WIDTH, wrapped
from harness_worker.entrypoints.view.figures import duration, tokens_of, waves_of
from harness_worker.errors import HarnessError

APP: Final = "harness_worker.demo.shop:registry"
INDENT: Final = 6


def demo(
    *,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the demo keeps its data. [default: .harness/demo]")
    ] = None,
) -> None:
    """Watch a small shop's support agent answer three customers.

    Takes some twelve seconds and needs no key; with ANTHROPIC_API_KEY set, Claude answers.
    """
    settings = load_settings()
    where = Home(home or settings.home / "demo")
    where.prepare()
    place = where.path
    console = _console()
    clock = SystemClock()
    started_s = clock.monotonic()
    console.print("A shop's support agent answers three customers.", style="bold")
    console.print(f"Its model is {_model(settings)}; its tools, workers and databases are real.\n")
    console.print("Starting Valkey, a coordinator, tool processes and the gateway …")
    with start(
        Target(command="harness demo", settings=settings.model_copy(update={"home": place})), APP, lambda _words: None
    ) as client:
        _reset(shop_file(place))  # now that no other stack's tools can be at work in it
        console.print(f"Ready after {duration(clock.monotonic() - started_s)}.")
        answers = [_converse(client, each, console) for each in CONVERSATIONS]
        console.print("\nStopping the stack …")
        stopping_s = clock.monotonic()
    console.print(f"Stopped after {duration(clock.monotonic() - stopping_s)}.")
    _conclude(answers, place, console)
    raise typer.Exit(0 if all(answer.is_complete for answer in answers) else 1)


def _reset(shop: Path) -> None:
    try:
        reset(shop)
    except sqlite3.OperationalError as refused:
        raise HarnessError(f"cannot write {shop}: {refused}; choose another place with --home") from None


def _model(settings: Settings) -> str:
    model = model_of(settings)
    return "a recording" if model.startswith(SCRIPTED) else f"{model}, with your ANTHROPIC_API_KEY"


def _console() -> Console:
    out = wide_console()
    out.width = min(out.width, MAX_WIDTH)
    return out


def _converse(client: GatewayClient, conversation: Conversation, console: Console) -> FollowedTurn:
    body = {"agent": "support", "input": conversation.question, "metadata": {"script": conversation.script}}
    console.print()
    console.print(_quoted("ask", conversation.question, console.width), style="bold")
    answered = ask(client, body, console)
    told = plain(answered.turn["output_text"] or "(no answer)")
    console.print(_quoted("told", told, console.width), style="green")
    return answered


def _quoted(label: str, words: str, width: int) -> str:
    return f"{label:<{INDENT}}" + f"\n{'':<{INDENT}}".join(wrapped(words, width - INDENT))


def _conclude(answers: Sequence[FollowedTurn], home: Path, console: Console) -> None:
    console.print()
    console.print(_summary(answers))
    console.print("\nWhere to look next", style="bold")
    for row in _next(answers[0].turn["id"], home):
        console.print(row, style="" if row.endswith(":") else "cyan", soft_wrap=True)


def _summary(answers: Sequence[FollowedTurn]) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="bold")
    table.add_column("turn")
    for name in ("status", "steps", "waves", "calls", "time", "tokens", "from cache"):
        table.add_column(name, justify="left" if name == "status" else "right")
    for conversation, answered in zip(CONVERSATIONS, answers, strict=True):
        table.add_row(conversation.script, *_figures(answered))
    return table


def _figures(answered: FollowedTurn) -> tuple[str, ...]:
    turn = answered.turn
    usage = turn["usage"]
    counts = (usage["steps"], waves_of(turn), len(turn["calls"]))
    tokens = (tokens_of(usage), usage["cache_read_tokens"])
    return (turn["status"], *map(str, counts), duration(answered.elapsed_s), *(f"{number:,}" for number in tokens))


def _next(turn_id: str, home: Path) -> tuple[str, ...]:
    harness, place = _short(Path(sys.argv[0])), _short(home)
    return (
        "  Keep the same stack running, with these turns in it:",
        f"    {harness} up --home {place} --app {APP}",
        "  and from another terminal see a turn, or the whole HTTP API:",
        f"    curl -s http://127.0.0.1:8700/v1/turns/{turn_id}",
        "    http://127.0.0.1:8700/docs",
        "  Ask it one of the three questions again, with the same live view:",
        f'    {harness} run "Wrap order 1055" --home {place} --metadata script=gift',
        "  Write an agent of your own in thirty lines:",
        "    README.md",
        "  Read how a turn survives any process dying:",
        "    docs/architecture.md",
    )


def _short(path: Path) -> str:
    absolute = path.absolute()
    return shlex.quote(str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute))
