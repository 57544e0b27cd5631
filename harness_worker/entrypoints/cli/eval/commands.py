"""``harness eval``: ask agents a user's own cases, and compare their answers with what is expected."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from harness_worker.client.client import GatewayClient
from harness_worker.config import Settings, load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.asking import agents_of, say_which, there_are
from harness_worker.entrypoints.cli.eval.cell_runner import Asking
from harness_worker.entrypoints.cli.eval.evaluation import Evaluation, Plan
from harness_worker.entrypoints.cli.eval.results_file import ResultsFile
from harness_worker.entrypoints.cli.options import STDIN, AppToStart, StackHome, Url, content_of
from harness_worker.entrypoints.cli.output import console as wide_console
from harness_worker.entrypoints.cli.output import write_json
from harness_worker.entrypoints.cli.target import ANY_APP, Target, is_running, reach
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.eval_report import agent_table, failure_lines
from harness_worker.entrypoints.view.figures import counted
from harness_worker.errors import ConfigError
from harness_worker.evaluation.cases import read_cases
from harness_worker.evaluation.checking import load_check
from harness_worker.evaluation.summary import EvalSweep, summary
from harness_worker.validation import MAX_METADATA_CHARS, storable
from harness_worker.wire import JsonObject

MOST_AT_ONCE: Final = 64
MOST_COORDINATORS: Final = 16
MOST_WAIT_S: Final = 604_800
"""A week: longer than any turn waits for a person by default."""

STEM_CHARS: Final = 40


def eval_(  # noqa: PLR0913 - one parameter an option
    cases: Annotated[
        Path,
        typer.Argument(metavar="CASES", help="The cases, one JSON object per line; - reads stdin.", show_default=False),
    ],
    *,
    agent: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The agent to ask; may be repeated, or left out if there is only one."),
    ] = None,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="How many times each case is asked.")] = 1,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, max=MOST_AT_ONCE, help="Cells in flight.")] = 16,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The sweep's name; an earlier sweep's name continues it. [default: a new one]"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append each result here, one JSON line per cell.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask cells again whose turns, by --out, failed or were cancelled.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only this many cases, from the first on.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(metavar="M:F", help="module:function of your own that scores each turn: check(case, turn)."),
    ] = None,
    threshold: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="The share of cells that must pass.")
    ] = 1.0,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=1, max=MOST_WAIT_S, help="Seconds to wait for a turn, and then for its judges."
        ),
    ] = 600.0,
    url: Url = None,
    home: StackHome = None,
    app: AppToStart = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, on stdout.")] = False,
) -> None:
    """Ask agents your own cases, and compare what they answer and do with what you expect.

    A case is a JSON object on a line of its own:

    \b
        {"id": "late", "input": "Where is 1042?", "expect": {"contains": "Friday", "calls": ["get_order"]}}

    \b
        harness eval cases.jsonl --agent support --agent support-small --repeats 3 --out results.jsonl

    The turns go to the stack at --url, else to the one running in --home, else to one started for them with --app. To
    continue a sweep that was stopped or killed, run the same command with its --name: nothing is asked twice, unless
    --retry-failed says so.

    Exits with 0 if enough cells of each agent passed, 1 if not, 2 if the cases or options are wrong, 3 if the stack
    does not answer.
    """  # noqa: D301 - click reads the \b
    settings = load_settings(home=home, app=app, gateway_url=url)
    if retry_failed and (name is None or out is None):
        raise ConfigError("--retry-failed: name the sweep by --name, and by --out the file that says what failed")
    sweep = _new_name(cases) if name is None else _checked(name)
    chosen = read_cases(str(cases), content_of(cases))[:limit]
    own = load_check(check) if check else None
    console = wide_console(stderr=True)
    options = Addresses(settings).options
    asking = Asking(
        timeout_s=timeout,
        goes_on=name is not None,
        include=("messages",) if own else (),
        on_waiting=lambda turn: _tell_waiting(console, turn, options),
    )
    target = _target(settings, concurrency, app)
    with ResultsFile(out, sweep) if out else nullcontext() as file:
        plan = Plan(
            sweep=sweep,
            cases=chosen,
            repeats=repeats,
            concurrency=concurrency,
            check=own,
            out=file,
            retry_failed=retry_failed,
        )
        evaluation = _carried_out(plan, agent or [], target, asking, console)
    found = summary(
        EvalSweep(
            name=sweep, agents=evaluation.agents, repeats=repeats, threshold=threshold, results=evaluation.results
        )
    )
    restart = None if is_running(target) else _restart(settings)
    retry = f"{_named(sweep)} --retry-failed" if out else None
    _print(found, options, restart, retry, as_json=as_json)
    raise typer.Exit(0 if found["passed"] else 1)


def _carried_out(plan: Plan, wanted: list[str], target: Target, asking: Asking, console: Console) -> Evaluation:
    """The evaluation, with a result of each cell; no stack is needed if the file has those of all agents named."""
    known = Evaluation(plan, tuple(dict.fromkeys(wanted)))
    if wanted and not known.left:
        with _going_on(known, plan.sweep, console):
            known.take_up()
        return known
    with reach(target, _saying(console)) as client:
        evaluation = Evaluation(plan, _chosen(client, wanted))
        with _going_on(evaluation, plan.sweep, console):
            evaluation.run(client, asking, console)
    return evaluation


def _target(settings: Settings, concurrency: int, app: str | None) -> Target:
    """The stack; if it has to be started, it gets a thread for each cell in flight, within reason."""
    return Target(command="harness eval", settings=settings, coordinators=min(concurrency, MOST_COORDINATORS), app=app)


def _new_name(cases: Path) -> str:
    stem = "stdin" if cases == STDIN else cases.stem[:STEM_CHARS]
    return f"{stem}-{secrets.token_hex(4)}"


def _checked(name: str) -> str:
    if not 1 <= len(name) <= MAX_METADATA_CHARS or storable(name) != name.strip():
        raise ConfigError(f"--name: give 1 to {MAX_METADATA_CHARS} characters without spaces around them")
    return name


def _chosen(client: GatewayClient, wanted: list[str]) -> tuple[str, ...]:
    """The agents to ask.

    Raises:
        ConfigError: One of them does not exist, or none was named and there is not exactly one.
    """
    known = agents_of(client)
    unknown = [agent for agent in wanted if agent not in known]
    if unknown:
        raise ConfigError(f"there is no agent {', '.join(unknown)}; {there_are(known)}")
    if not wanted and len(known) != 1:
        raise ConfigError(say_which(known))
    return tuple(dict.fromkeys(wanted or known))


@contextmanager
def _going_on(evaluation: Evaluation, sweep: str, console: Console) -> Generator[None]:
    """At the start of the sweep, and if it is cut short, say by which name it can be continued."""
    named = _named(sweep)
    console.print(f"{counted(evaluation.total, 'cell')}, {evaluation.done:,} done before; {named}", soft_wrap=True)
    try:
        yield
    except BaseException:
        done = f"{evaluation.done:,} of {counted(evaluation.total, 'cell')} are done"
        console.print(
            f"{done}; turns that were begun go on. The same command with {named} goes on too.",
            soft_wrap=True,
        )
        raise


def _named(sweep: str) -> str:
    return f"--name {shlex.quote(plain(sweep))}"


def _saying(console: Console) -> Callable[[str], None]:
    return lambda words: console.print(words, style="dim", soft_wrap=True)


def _tell_waiting(console: Console, turn: JsonObject, options: str) -> None:
    console.print(
        f"turn {turn['id']} waits for a person: harness turns approve {turn['id']}{options}, or deny",
        soft_wrap=True,
    )


def _restart(settings: Settings) -> str:
    """The command that restarts a stack that ran for the sweep alone."""
    return f"harness up --app {shlex.quote(settings.app or ANY_APP)}{Addresses(settings).home_option}"


def _print(found: JsonObject, options: str, restart: str | None, retry: str | None, *, as_json: bool) -> None:
    if as_json:
        write_json(found)
        return
    console = wide_console()
    for figures in found["agents"]:
        console.print(agent_table(figures, found["repeats"]))
    for line in failure_lines(found["failures"], options, restart, retry):
        console.print(line, soft_wrap=True)
