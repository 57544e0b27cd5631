"""``harness up``: the whole stack on this machine."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from harness_worker.config import Settings, load_settings
from harness_worker.entrypoints.cli.output import console
from harness_worker.entrypoints.cli.ready_screen import ready_screen
from harness_worker.entrypoints.flower_access import given_access, new_access
from harness_worker.entrypoints.stack.info import StackInfo
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.plan import FlowerPlan, StackPlan
from harness_worker.entrypoints.stack.up import run_up
from harness_worker.entrypoints.worker.roles import COORDINATOR_THREADS, tool_processes


def up(  # noqa: PLR0913 - one parameter an option
    *,
    app: Annotated[
        str | None, typer.Option(help="Your agents, package.module:registry. [env: HARNESS_APP]", metavar="M:R")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it keeps its data. [env: HARNESS_HOME; default: .harness]")
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="The gateway's port; 0 picks a free one.")
    ] = 8700,
    coordinators: Annotated[
        int, typer.Option(metavar="N", min=1, help="Threads that wait for models.")
    ] = COORDINATOR_THREADS,
    tools: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Processes that run tools; 0 starts none. [default: the CPUs, at least 2]"
        ),
    ] = None,
    flower: Annotated[bool, typer.Option("--flower", help="Start Flower too, to watch the workers.")] = False,
    flower_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65_535, help="Flower's port; 0 picks a free one.")
    ] = 5555,
    as_json: Annotated[bool, typer.Option("--json", help="When ready, print one JSON line on stdout.")] = False,
    only_for: Annotated[str | None, typer.Option(hidden=True, help="The command that started it for itself.")] = None,
    lock: Annotated[
        int | None, typer.Option("--lock-fd", hidden=True, help="The lock of the home, which that command took.")
    ] = None,
) -> None:
    """Run everything on this machine: Redis, database, gateway, a coordinator and a tool worker.

    \b
        harness up --app package.module:registry
        harness up --app package.module:registry --port 0 --home /tmp/stack --flower

    It starts what is missing: a Valkey or Redis, unless HARNESS_REDIS_URL names one, and an SQLite database in the
    home, unless HARNESS_DATABASE_URL names one. A process that dies is started again. Logs go to stderr. Ctrl-C lets
    running work finish within HARNESS_GRACE_S seconds (20); a second Ctrl-C stops at once.
    """  # noqa: D301 - click reads the \b
    settings = load_settings(app=app, home=home)
    plan = StackPlan(
        settings=settings,
        port=port,
        coordinators=coordinators,
        tools=tools if tools is not None else tool_processes(),
        flower=_flower(settings, flower_port) if flower else None,
        only_for=only_for,
        lock=lock,
    )
    screen = console(stderr=True)
    coloured = sys.stderr.isatty() and screen.color_system is not None and not screen.no_color
    run_up(plan, LogWriter(sys.stderr, coloured=coloured), partial(_announce, settings, as_json=as_json))


def _flower(settings: Settings, port: int) -> FlowerPlan:
    return FlowerPlan(port=port, access=given_access(settings) or new_access())


def _announce(settings: Settings, info: StackInfo, *, as_json: bool) -> None:
    # A generated password is printed here and nowhere else; one that was given is known.
    text = info.ready_line() if as_json else ready_screen(info, tells_flower_password=settings.flower_auth is None)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
