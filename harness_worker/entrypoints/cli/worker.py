"""``harness worker``: one worker in the foreground."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

import typer

from harness_worker.apps import load_registry
from harness_worker.config import Settings, load_settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.standard_streams import keeping_streams, print_to_stderr
from harness_worker.entrypoints.worker.roles import COORDINATOR_THREADS, Role, tool_processes
from harness_worker.entrypoints.worker.run import run_worker
from harness_worker.errors import ConfigError
from harness_worker.wire import Priority, turn_queue


def worker(
    *,
    role: Annotated[Role, typer.Option(help="coordinator: drives turns and asks models; tools: runs tools.")],
    app: Annotated[
        str | None, typer.Option(help="Your agents, package.module:registry. [env: HARNESS_APP]", metavar="M:R")
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Joins the stack that runs there, unless the URLs are given. [env: HARNESS_HOME]"
        ),
    ] = None,
    queues: Annotated[
        str | None, typer.Option(help="Only these queues, a,b. [default: every queue of the role]", metavar="A,B")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Threads of a coordinator, or processes that run tools. "
            f"[default: {COORDINATOR_THREADS} threads; as many processes as CPUs, at least 2]",
        ),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the process id here once the worker takes work, for health checks."),
    ] = None,
) -> None:
    """Run one worker; SIGTERM, SIGHUP and Ctrl-C let it finish what it is doing.

    \b
        harness worker --role coordinator --app package.module:registry --concurrency 16
        harness worker --role tools --app package.module:registry --concurrency 4

    It needs the same HARNESS_REDIS_URL and HARNESS_DATABASE_URL as the others, and the same app.
    """  # noqa: D301 - click reads the \b
    chosen = _chosen(role, queues or "")
    if ready_file is not None:
        _vacate(ready_file)
    settings = _joined(load_settings(app=app, home=home))
    print_to_stderr()  # where the log goes
    with keeping_streams():
        registry = load_registry(settings.app, max_tool_timeout_s=settings.max_tool_timeout_s)
    size = concurrency or _default_size(role)
    run_worker(role, registry, settings, queues=chosen, concurrency=size, ready_file=ready_file)


def _chosen(role: Role, queues: str) -> tuple[str, ...]:
    """The queues that ``--queues`` names.

    Raises:
        ConfigError: A coordinator would take a queue without turns, or a tool worker one with turns.
    """
    chosen = tuple(name for name in map(str.strip, queues.split(",")) if name)
    of_turns = [turn_queue(priority) for priority in Priority]
    strange = [name for name in chosen if (name in of_turns) is not (role is Role.COORDINATOR)]
    if strange:
        takes = " and ".join(of_turns) if role is Role.COORDINATOR else "the queues that tools name, not those of turns"
        raise ConfigError(f"--queues {', '.join(strange)}: a worker of role {role} takes {takes}")
    return chosen


def _vacate(ready_file: Path) -> None:
    """Remove what an earlier worker has written, because health checks would take this one for ready.

    Whether there is room is tried in another file: this one exists only once the worker is ready.

    Raises:
        ConfigError: The file cannot be written, so that no health check would ever succeed.
    """
    try:
        if ready_file.is_file():
            ready_file.unlink()
        if ready_file.exists():  # /dev/null, say, which is not removed
            ready_file.write_text("\n")
        else:
            with NamedTemporaryFile(dir=ready_file.parent, buffering=0) as trial:
                trial.write(b"\n")
    except OSError as error:
        raise ConfigError(f"--ready-file {ready_file}: {error.strerror}") from None


def _joined(settings: Settings) -> Settings:
    """The settings; missing URLs are those of the stack that runs in the home.

    Raises:
        ConfigError: URLs are missing, and no stack runs there.
    """
    addresses = Addresses(settings)
    named = {
        "HARNESS_REDIS_URL": addresses.redis_url or addresses.broker_url,
        "HARNESS_DATABASE_URL": addresses.database_url,
    }
    missing = [name for name, url in named.items() if url is None]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} not set, and no stack runs in {settings.home}: set what is missing, "
            "or name the home of a running stack with --home"
        )
    return settings.model_copy(
        update={
            "redis_url": addresses.redis_url,
            "broker_url": addresses.broker_url,
            "database_url": addresses.database_url,
            "artifact_url": addresses.artifact_url,
        }
    )


def _default_size(role: Role) -> int:
    return COORDINATOR_THREADS if role is Role.COORDINATOR else tool_processes()
