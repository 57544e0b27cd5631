"""``harness flower``: web pages about the workers and their tasks."""

from __future__ import annotations

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.flower.server import serve_flower
from harness_worker.config import Settings, load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.exiting import exit_at_once
from harness_worker.entrypoints.flower_access import VARIABLE, given_access
from harness_worker.entrypoints.serving.listening import listen
from harness_worker.errors import ConfigError

_LINE: Final = "[%(asctime)s: %(levelname)s] %(message)s"
"""The format of log lines, like that of workers."""


def flower(
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to serve.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65_535, help="The port; 0 picks a free one.")] = 5555,
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Watches the stack that runs there, unless HARNESS_REDIS_URL is set. [env: HARNESS_HOME]",
        ),
    ] = None,
    fd: Annotated[int | None, typer.Option(hidden=True, help="A listening socket that was inherited.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(hidden=True, help="Gets one line as soon as requests are answered.")
    ] = None,
) -> None:
    """Serve Flower, to watch the workers and their tasks; needs HARNESS_REDIS_URL and HARNESS_FLOWER_AUTH.

    HARNESS_FLOWER_AUTH is the user:password it asks for. It only shows: nothing can be revoked or sent from it.
    """
    settings = load_settings(home=home)
    access = given_access(settings)
    if access is None:
        raise ConfigError(f"{VARIABLE} is not set: give the user:password that Flower is to ask for")
    app = _application(settings)
    logging.basicConfig(level=settings.log_level, stream=sys.stderr, format=_LINE)
    listener = listen(host, port) if fd is None else socket.socket(fileno=fd)
    typer.echo(f"Flower serves {host} port {listener.getsockname()[1]}", err=True)

    def ready() -> None:
        if ready_file is not None:
            ready_file.write_text(f"{os.getpid()}\n")

    serve_flower(app, listener, credentials=access.credentials, on_ready=ready)
    exit_at_once()  # a thread of Flower's may wait for an absent broker


def _application(settings: Settings) -> Any:  # noqa: ANN401 - Celery's classes are generic without need
    addresses = Addresses(settings)
    redis_url = addresses.redis_url or addresses.broker_url
    if redis_url is None:
        raise ConfigError(
            f"HARNESS_REDIS_URL is not set, and no stack runs in {settings.home}: give redis://HOST:PORT/DB, "
            "or name the home of a running stack with --home"
        )
    app = make_app(settings, redis_url=redis_url, broker_url=addresses.broker_url)
    app.conf.broker_transport = None  # Flower looks into queues of a broker only if it knows it by its URL
    return app
