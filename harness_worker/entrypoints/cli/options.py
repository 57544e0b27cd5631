"""Options that commands share, and reading their values."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from harness_worker.client.client import GatewayClient
from harness_worker.config import load_settings
from harness_worker.entrypoints.cli.target import attach
from harness_worker.errors import ConfigError
from harness_worker.wire import TurnStatus

STDIN: Final = Path("-")
DAY_S: Final = 86_400.0
_AGE: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_UNITS_S: Final = {"m": 60.0, "h": 3_600.0, "d": DAY_S, "w": 7 * DAY_S}

Url: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="A running gateway. [env: HARNESS_GATEWAY_URL]")
]
Home: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where a running stack keeps its data. [env: HARNESS_HOME]")
]
StackHome: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the stack keeps its data. [env: HARNESS_HOME]")
]
JournalHome: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the stack keeps its data if no database is named. [env: HARNESS_HOME]"),
]
AppToStart: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="M:R",
        help="module:registry to start a stack with, if none runs; given here, one in --home must serve it. "
        "[env: HARNESS_APP]",
    ),
]
OfStatus: TypeAlias = Annotated[TurnStatus | None, typer.Option(help="Only those in this status.", show_choices=True)]
OfSession: TypeAlias = Annotated[str | None, typer.Option(metavar="ID", help="Only those of this session.")]
OfAgent: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this agent.")]
WithMetadata: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Only those with KEY=VALUE in their metadata; may be repeated."),
]
PageLimit: TypeAlias = Annotated[int, typer.Option(metavar="N", min=1, max=200, help="How many.")]
After: TypeAlias = Annotated[str | None, typer.Option(metavar="CURSOR", help="The cursor that the last page gave.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Only whole ids, one per line.")]
PageAsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print {data, next} as the gateway gives it.")]
Turn: TypeAlias = Annotated[str, typer.Argument(metavar="TURN", help="Its id, or the end of it.", show_default=False)]


def running_at(url: str | None, home: Path | None) -> AbstractContextManager[GatewayClient]:
    """A client of the stack that these options name.

    Raises:
        StackUnreachable: None runs.
    """
    return attach(load_settings(home=home, gateway_url=url))


def content_of(file: Path) -> bytes:
    """The content of a file, or of stdin for ``-``.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error


def age_s(text: str) -> float | None:
    """How many seconds ``30m``, ``12h``, ``7d`` or ``4w`` are; ``None`` for anything else."""
    found = _AGE.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS_S[found[2]]


def pairs(given: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` strings as a mapping.

    Raises:
        ConfigError: One of them has no ``=``, or no key.
    """
    split = [pair.partition("=") for pair in given]
    bad = [key + equals + value for key, equals, value in split if not (key and equals)]
    if bad:
        raise ConfigError(f"--metadata {bad[0]}: write it as KEY=VALUE, such as --metadata customer=1042")
    return {key: value for key, _, value in split}
