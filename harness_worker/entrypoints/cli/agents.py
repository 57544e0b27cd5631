"""``harness agents``: the agents that can be asked."""

from __future__ import annotations

from typing import Annotated

import typer

from harness_worker.entrypoints.cli.options import Home, Url, running_at
from harness_worker.entrypoints.cli.output import console, write_json
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.entrypoints.view.catalogue_table import catalogue_table


def agents(
    *,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {data: [agent, …]} as the gateway gives it.")] = False,
) -> None:
    """List the agents that can be asked, by name, with their models and tools.

    \b
        harness agents
        harness run "Where is my order 1042?" --agent support

    They are the agents that coordinators have published; `harness doctor` says whether workers serve their tools.
    """  # noqa: D301 - click reads the \b
    with running_at(url, home) as client:
        found = client.agents()
    if as_json:
        write_json({"data": found})
        return
    out = console()
    for line in catalogue_table(found, out.width) if found else ():
        out.print(line, soft_wrap=True)
    if not found:
        tell("no agent is published: start a coordinator with an app that declares one")
