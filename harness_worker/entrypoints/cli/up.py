"""``harness up``: the whole stack on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from harness_worker.config import environment, load_settings
from harness_worker.entrypoints.cli.ready_screen import ready_screen
from harness_worker.entrypoints.stack.info import StackInfo
from harness_worker.entrypoints.stack.logs import LogWriter
from harness_worker.entrypoints.stack.plan import StackPlan
from harness_worker.entrypoints.stack.up import run_up

_LEAST_TOOLS: Final = 2


def up(
    *,
    app: Annotated[
        str | None, typer.Option(help="Your agents, package.module:registry. [env: HARNESS_APP]", metavar="M:R")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="Where it keeps its data. [env: HARNESS_HOME; default: .harness]")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The gateway's port; 0 picks a free one.")] = 8700,
    coordinators: Annotated[int, typer.Option(min=1, help="Threads that wait for models.")] = 8,
    tools: Annotated[
        int | None, typer.Option(min=0, help="Processes that run tools; 0 starts none. [default: the CPUs, at least 2]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say that it is ready in one JSON line on stdout.")] = False,
) -> None:
    """Run everything on this machine: Redis, database, gateway, a coordinator and a tool worker.

    What is missing is started: a Valkey or Redis, unless HARNESS_REDIS_URL names one, and a SQLite database in the
    home, unless HARNESS_DATABASE_URL names one. A process that dies is started again. Logs go to stderr; Ctrl-C lets
    running work finish within HARNESS_GRACE_S seconds (20), a second one stops at once.
    """
    plan = StackPlan(
        settings=load_settings(app=app, home=home),
        port=port,
        coordinators=coordinators,
        tools=tools if tools is not None else max(_LEAST_TOOLS, os.cpu_count() or 0),
    )
    coloured = sys.stderr.isatty() and "NO_COLOR" not in environment()
    run_up(plan, LogWriter(sys.stderr, coloured=coloured), _announce_json if as_json else _announce)


def _announce_json(info: StackInfo) -> None:
    _write(info.ready_line())


def _announce(info: StackInfo) -> None:
    _write(ready_screen(info))


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
