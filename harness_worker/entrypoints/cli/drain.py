"""``harness drain``: ask workers to finish their work and exit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from harness_worker.adapters.clock import SystemClock
from harness_worker.client.client import StackUnreachable
from harness_worker.config import load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.drain_workers import Drained, drain_workers
from harness_worker.entrypoints.cli.output import write, write_json
from harness_worker.entrypoints.messages import FAILED

_SLACK_S: Final = 5.0
_MOST_S: Final = 86_400


def drain(
    *,
    workers: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKERS", help="Their names, ROLE@HOST, as Flower shows them. [default: all]"),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Asks those of the stack that runs there. [env: HARNESS_HOME]")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=_MOST_S,
            help="Seconds to wait until they are gone. [default: 5 more than HARNESS_GRACE_S]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {gone, left}.")] = False,
) -> None:
    """Ask workers to take no more work, finish what they are doing, and exit.

    \b
        harness drain
        harness drain tools-2@host7

    Work that does not finish within the worker's HARNESS_GRACE_S is ended. It continues elsewhere if it may run twice;
    a write that may not ends as outcome_unknown. Workers of `harness up` are started again, so that draining all of
    them is a rolling restart.

    Exits with 0 when all are gone, with 1 if some still answer.
    """  # noqa: D301 - click reads the \b
    settings = load_settings(home=home)
    addresses = Addresses(settings)
    if not (addresses.redis_url or addresses.broker_url):
        raise StackUnreachable(
            f"no workers to ask: no stack runs in {settings.home}, and HARNESS_REDIS_URL is not set. "
            "Name the home of a running stack with --home."
        )
    wait_s = settings.grace_s + _SLACK_S if wait is None else wait
    drained = drain_workers(addresses, SystemClock(), workers or (), wait_s)
    _print(drained, as_json=as_json)
    raise typer.Exit(FAILED if drained.left else 0)


def _print(drained: Drained, *, as_json: bool) -> None:
    if as_json:
        write_json(asdict(drained))
        return
    for name in drained.gone:
        write(f"{name} is gone")
    for name in drained.left:
        write(f"{name} still answers")
    if not drained.gone and not drained.left:
        write("no worker answers")
