"""``harness usage``: what turns have used, in tokens and dollars."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from harness_worker.client.client import RequestRefused
from harness_worker.entrypoints.cli.options import (
    Home,
    OfAgent,
    OfSession,
    OfStatus,
    Url,
    WithMetadata,
    age_s,
    pairs,
    running_at,
)
from harness_worker.entrypoints.cli.output import console, write_json
from harness_worker.entrypoints.cli.standard_streams import tell
from harness_worker.entrypoints.view.usage_table import usage_table
from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject, rfc3339

_DATE: Final = re.compile(r"[0-9]{4}-")
_OPTIONS: Final[Mapping[str, str]] = {"from": "--since", "to": "--until", "session_id": "--session"}
"""Options whose parameters have other names."""

_PARAMETER: Final = re.compile("`([a-z_]+)`")
"""How a message of the gateway refers to other parameters."""


def usage(  # noqa: PLR0913 - one parameter an option
    *,
    by: Annotated[
        str,
        typer.Option(
            metavar="WHAT", help="What to add up by: agent, day (UTC), model, session, status or metadata.KEY."
        ),
    ] = "agent",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Only turns made since then: 30m, 12h, 7d, 4w, a day (2026-01-31) or an RFC 3339 time."
        ),
    ] = "7d",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only turns made before then; written likewise. [default: now]")
    ] = None,
    status: OfStatus = None,
    session: OfSession = None,
    agent: OfAgent = None,
    metadata: WithMetadata = None,
    limit: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1_000, help="How many groups: the most expensive, or the newest days."),
    ] = 100,
    url: Url = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print {from, to, by, data, groups, total}.")] = False,
) -> None:
    """Show what turns have used: model calls (steps), tool calls, tokens of four classes, dollars.

    \b
        harness usage --by day --since 30d
        harness usage --by metadata.customer --since 2026-01-01 --until 2026-02-01 --json

    A turn counts as a whole at the time it was made, with what it has used so far. The total covers all groups, shown
    or not.
    """  # noqa: D301 - click reads the \b
    now = time.time()
    narrowed = {"status": status, "session_id": session, "agent": agent, "metadata": pairs(metadata or [])}
    begin, end = moment_of("--since", since, now), None if until is None else moment_of("--until", until, now)
    with running_at(url, home) as client, refused_by_option():
        report = client.usage(since=begin, until=end, by=by, limit=limit, **narrowed)
    if as_json:
        write_json(report)
        return
    out = console()
    for line in usage_table(report, out.width):
        out.print(line, soft_wrap=True)
    if report["groups"] > len(report["data"]):
        left = f"{report['groups'] - len(report['data']):,} groups more are in the total: --limit shows them"
        tell(left)


@contextmanager
def refused_by_option() -> Generator[None]:
    """Within the context, make a refusal of a parameter name the option that set it.

    Raises:
        ConfigError: The gateway refuses a parameter.
        RequestRefused: The gateway refuses for another reason.
    """
    try:
        yield
    except RequestRefused as refused:
        errors = refused.problem.get("errors")
        if refused.code != "invalid_request" or not errors:
            raise
        raise ConfigError("\n  ".join(map(_by_option, errors))) from refused


def _by_option(error: JsonObject) -> str:
    """What is wrong with a parameter, in terms of the option that set it."""
    _, *places = error["loc"]  # the first is "query"
    message = _PARAMETER.sub(lambda found: _option(found[1]), error["msg"])
    return ": ".join([*map(_option, places), message])


def _option(parameter: str) -> str:
    if parameter.startswith("metadata."):
        return f"--metadata {parameter.removeprefix('metadata.')}"
    return _OPTIONS.get(parameter, f"--{parameter}")


def moment_of(option: str, text: str, now: float) -> str:
    """An age as an RFC 3339 time; what begins like a date as it is, because the gateway checks times.

    Raises:
        ConfigError: It is neither; the message names the option.
    """
    given_s = age_s(text)
    if given_s is not None:
        return rfc3339(now - given_s) or ""
    if _DATE.match(text):
        return text
    raise ConfigError(f"{option} {text}: give 30m, 12h, 7d, 4w, a day (2026-01-31) or an RFC 3339 time")
