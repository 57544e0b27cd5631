"""``harness sweep``: run recorded tasks of public benchmarks, and compare every turn with a plain replay."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness_worker.adapters.clock import SystemClock
from harness_worker.bootstrap.inline import AgentHarness
from harness_worker.config import Settings
from harness_worker.entrypoints.cli.output import console as wide_console
from harness_worker.entrypoints.cli.output import write_json
from harness_worker.entrypoints.cli.sweep.runners import HttpRunner, InProcessRunner
from harness_worker.entrypoints.cli.sweep.stack import sweep_gateway, sweep_settings
from harness_worker.entrypoints.cli.target import Target
from harness_worker.entrypoints.plain import plain
from harness_worker.entrypoints.view.counting import CountingProgress
from harness_worker.entrypoints.view.sweep_table import sweep_table
from harness_worker.errors import ConfigError
from harness_worker.workloads.base import Half, Workload, WorkloadTask
from harness_worker.workloads.catalogue import WORKLOADS, require_workload
from harness_worker.workloads.report import effect_lines, observation_lines, summary, write_lines
from harness_worker.workloads.sweep import Sweep, SweepResult, TurnRunner
from harness_worker.workloads.verdict import Verdict

app = typer.Typer(
    no_args_is_help=True,
    help="""Run recorded workloads and compare every turn with a plain replay.

    For your own cases, use `harness eval`.
    """,
)


class SweepProgress(CountingProgress):
    """Counts verdicts, and reports each task that failed. A context manager."""

    def found(self, task: WorkloadTask, verdict: Verdict) -> None:
        """Count one more task."""
        self.count(task.id, None if verdict.passed else verdict.why[0])


class Via(StrEnum):
    """What runs the turns."""

    HTTP = "http"
    INPROCESS = "inprocess"


@app.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction] - makes `sweep run` two words
    """Run recorded workloads."""


@app.command()
def run(  # noqa: PLR0913 - one parameter an option
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help=f"One of {', '.join(sorted(WORKLOADS))}.", show_default=False)
    ],
    *,
    half: Annotated[Half, typer.Option(help="Even (dev) or odd (heldout) SHA-256 of the task's id.")] = Half.ALL,
    category: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this category of the workload's tasks, or all. [default: its first]"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only this many of them, from the first on.")
    ] = None,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Turns in flight.")] = 8,
    coordinators: Annotated[
        int, typer.Option(metavar="N", min=1, help="Coordinator threads of the stack it starts.")
    ] = 2,
    tools: Annotated[int, typer.Option(metavar="N", min=1, help="Tool processes of the stack it starts.")] = 4,
    via: Annotated[Via, typer.Option(help="Through HTTP and workers, or in this one process.")] = Via.HTTP,
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the stack keeps its data; with --url, that stack's. [default: sweeps/NAME in HARNESS_HOME]",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="A running stack on this machine, instead of one of its own.")
    ] = None,
    effects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the effect journal here, one JSON line per row.")
    ] = None,
    observations: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each call here, one JSON line per call.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, on stdout.")] = False,
) -> None:
    """Play a workload's recorded actions and compare with a plain replay.

    \b
        harness sweep run tau2-retail --half dev

    For your own cases, use `harness eval`.

    Every observation, the effect journal and the final state of each task must equal those of the authors' own
    environment. A stack named by --url must run on this machine and serve the workload's app:

    \b
        harness up --app harness_worker.workloads.tau2.retail_app:registry

    Exits with 0 if all tasks passed, 1 if not, 2 if something is missing, 3 if the stack does not answer.
    """  # noqa: D301 - click reads the \b
    require_workload(workload)
    _check_writable("--effects", effects)
    _check_writable("--observations", observations)
    settings = sweep_settings(url, home, workload)
    target = _target(settings, coordinators, tools)
    loaded = WORKLOADS[workload](settings)
    console = wide_console(stderr=True)
    with closing(Sweep(loaded, half, concurrency, limit=limit, category=category)) as sweep:
        if via is Via.INPROCESS:
            console.print(f"replaying {len(sweep.tasks)} tasks without the harness first …")
            sweep.finish_replays()
        with (
            _runner(loaded, target, via, console) as runner,
            SweepProgress(console, SystemClock(), loaded.name, len(sweep.tasks)) as progress,
        ):
            result = sweep.run(runner, progress)
    try:
        _print(result, console, as_json=as_json)
    finally:  # the reader of stdout may have gone
        _write(result, effects, observations)
    raise typer.Exit(0 if result.passed else 1)


def _check_writable(option: str, file: Path | None) -> None:
    """Create a file before the run is paid for; existing content stays until there is something to write.

    Raises:
        ConfigError: It cannot be written.
    """
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    except OSError as error:
        raise ConfigError(f"{option} {file}: {error.strerror}") from error


def _target(settings: Settings, coordinators: int, tools: int) -> Target:
    # The app reads its places from the environment, before the stack tells it which home it got.
    env = {"HARNESS_HOME": str(settings.home.expanduser().absolute())}
    return Target(command="harness sweep", settings=settings, coordinators=coordinators, tools=tools, env=env)


@contextmanager
def _runner(workload: Workload, target: Target, via: Via, console: Console) -> Generator[TurnRunner]:
    if via is Via.INPROCESS:
        with closing(AgentHarness(workload.registry(), target.settings)) as harness:
            yield InProcessRunner(harness)
        return
    with sweep_gateway(target, workload, console.print) as client:
        yield HttpRunner(client, SystemClock())


def _write(result: SweepResult, effects: Path | None, observations: Path | None) -> None:
    if effects is not None:
        write_lines(effects, effect_lines(result))
    if observations is not None:
        write_lines(observations, observation_lines(result))


def _print(result: SweepResult, console: Console, *, as_json: bool) -> None:
    found = summary(result)
    if as_json:
        write_json(found)
        return
    wide_console().print(sweep_table(found))
    for failure in found["failures"]:
        console.print(f"task {failure['task']} (turn {failure['turn']}):")
        for why in failure["why"]:
            console.print(f"  {plain(why)}", soft_wrap=True)
