"""Which stack a command talks to: one that is named, the one that runs in the home, or one started for the command."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness_worker.entrypoints.client import GatewayClient, StackUnreachable
from harness_worker.entrypoints.stack import open_stack, running_stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to look for a stack, in this order.

    Args:
        url: A gateway's address; nothing else is tried if it is given.
        home: The directory in which a stack may be running.
        app: ``module:registry`` to start a stack with, if none runs.
        key: The API key of a stack that runs; one that is started knows none.
        coordinators: Threads that wait for models, of a stack that is started.
    """

    url: str | None
    home: Path
    app: str | None
    key: str | None = field(repr=False)
    coordinators: int = 2


@contextmanager
def reach(target: Target, say: Callable[[str], None]) -> Generator[GatewayClient]:
    """A client of the target's stack; one that had to be started is drained at the end.

    Args:
        target: Where to look.
        say: Told in words what takes time.

    Raises:
        StackUnreachable: Nothing runs, and there is no app to start a stack with.
        ConfigError: The app cannot be served.
    """
    url = _running_url(target)
    if url is not None:
        with GatewayClient(url, target.key) as client:
            yield client
        return
    if target.app is None:
        raise StackUnreachable(_nothing_runs(target.home))
    say(f"no stack runs in {target.home}; starting one …")
    stack = open_stack(home=target.home, app=target.app, coordinators=target.coordinators)
    with stack as started, GatewayClient(started.gateway_url) as client:
        yield client
        say("stopping the stack …")


@contextmanager
def attach(target: Target) -> Generator[GatewayClient]:
    """A client of the target's stack, which must be running.

    Raises:
        StackUnreachable: None runs.
    """
    url = _running_url(target)
    if url is None:
        raise StackUnreachable(
            f"no stack runs in {target.home}: name the home of a running one with --home, "
            "or its gateway with --url or HARNESS_GATEWAY_URL"
        )
    with GatewayClient(url, target.key) as client:
        yield client


def is_running(target: Target) -> bool:
    """Whether the target's turns can be asked about now: no longer, once a stack that ``reach`` started is drained."""
    return _running_url(target) is not None


def _running_url(target: Target) -> str | None:
    running = None if target.url else running_stack(target.home)
    return target.url or (running.gateway_url if running else None)


def _nothing_runs(home: Path) -> str:
    return (
        f"no stack runs in {home}. Start one in another terminal with\n"
        "  harness up --app package.module:registry\n"
        "or add --app package.module:registry here to have one for this command, or name a running one with --url."
    )
