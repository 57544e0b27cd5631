"""What the commands on turns have in common: how they name a turn and the stack it is on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from harness_worker.config import load_settings
from harness_worker.entrypoints.cli.target import Target, attach
from harness_worker.entrypoints.client import GatewayClient

Url: TypeAlias = Annotated[str | None, typer.Option(help="A running gateway. [env: HARNESS_GATEWAY_URL]")]
Home: TypeAlias = Annotated[Path | None, typer.Option(help="Where a running stack keeps its data. [env: HARNESS_HOME]")]
Turn: TypeAlias = Annotated[str, typer.Argument(help="Its id, or the end of it.", show_default=False)]


@contextmanager
def running_at(url: str | None, home: Path | None) -> Generator[GatewayClient]:
    """A client of the stack that these options name.

    Raises:
        StackUnreachable: None runs.
    """
    settings = load_settings(home=home, gateway_url=url)
    target = Target(url=settings.gateway_url, home=settings.home, app=None, key=settings.gateway_key)
    with attach(target) as client:
        yield client
