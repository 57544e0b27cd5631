"""``harness doctor``: check the stack, and say what to fix."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from harness_worker.client.client import StackUnreachable
from harness_worker.config import environment, load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.output import console, write_json
from harness_worker.entrypoints.doctor.examine import Examination, examine
from harness_worker.entrypoints.messages import FAILED, UNREACHABLE
from harness_worker.entrypoints.view.findings import draw_finding


def doctor(
    *,
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Looks at the stack that runs there, where no URL is set. [env: HARNESS_HOME]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {ok, checks: [{name, state, said, mend}]}.")] = False,
) -> None:
    """Check that everything is there and set up correctly, and say how to fix what is not.

    Checks the settings, the gateway, Redis, the database and its tables, the clocks, the workers of each role, the
    catalogue of agents and the artifact store, as HARNESS_* and the stack that runs in --home name them. A line that
    starts with ! is a warning, one with ✗ must be fixed.

    Exits with 0 if nothing is wrong, 1 if something is, 3 if nothing can be reached.
    """
    addresses = Addresses(load_settings(home=home))
    if addresses.is_empty:
        if as_json:
            write_json({"ok": False, "checks": []})
        raise StackUnreachable(
            f"there is nothing to look at: no stack runs in {addresses.settings.home}, and neither HARNESS_REDIS_URL "
            "nor HARNESS_DATABASE_URL is set. Start a stack with\n"
            f"  harness up --app package.module:registry{addresses.home_option}\n"
            "or name the home of a running one with --home."
        )
    found = examine(addresses, environment())
    _print(found, as_json=as_json)
    raise typer.Exit(_exit_code(found))


def _print(found: Examination, *, as_json: bool) -> None:
    if as_json:
        write_json({"ok": found.is_well, "checks": [asdict(finding) for finding in found.findings]})
        return
    out = console()
    for finding in found.findings:
        for line in draw_finding(finding, width=out.width, encoding=out.encoding):
            out.print(line, soft_wrap=True)


def _exit_code(found: Examination) -> int:
    if found.is_well:
        return 0
    return FAILED if found.reached_something else UNREACHABLE
