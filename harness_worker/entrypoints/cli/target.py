"""The stack that a command talks to: a named one, the one that runs in the home, or one started for the command."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from harness_worker.client.client import GatewayClient, StackUnreachable
from harness_worker.config import Settings
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.stack import open_stack
from harness_worker.errors import ConfigError

ANY_APP: Final = "package.module:registry"
"""Stands for the name of an app in a command that is advised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which stack to talk to, and how to start one if need be.

    Args:
        command: The command that needs the stack; shown to others who find a stack that it started.
        settings: They name the gateway, or the home in which a stack may be running; also the API key and the app.
        coordinators: Threads that wait for models, in a stack that is started.
        tools: Processes that run tools, in a stack that is started.
        app: The value of ``--app``; a stack that is already running must serve it.
        env: Variables for a stack that is started, on top of this process's environment.
    """

    command: str
    settings: Settings
    coordinators: int = 2
    tools: int = 4
    env: Mapping[str, str] | None = None
    app: str | None = None


@contextmanager
def reach(target: Target, say: Callable[[str], None]) -> Generator[GatewayClient]:
    """A client of the target's stack; one that had to be started is drained at the end.

    Args:
        target: Which stack.
        say: Called with a message about each step that takes time.

    Raises:
        StackUnreachable: Nothing runs, and there is no app to start a stack with.
        ConfigError: The app cannot be served, or the running stack serves another one.
    """
    settings = target.settings
    addresses = Addresses(settings)
    url = addresses.gateway_url
    if url is not None:
        _check_served(target, addresses.app)
        if addresses.only_for:
            say(
                f"the stack in {settings.home} is one that `{addresses.only_for}` started for itself: it ends with "
                "that command; another one is started with --home DIRECTORY"
            )
        with GatewayClient(url, settings.gateway_key, patience_s=0) as client:
            yield client
        return
    if settings.app is None:
        raise StackUnreachable(_nothing_runs(addresses))
    say(f"no stack runs in {settings.home}; starting one …")
    with start(target, settings.app, say) as client:
        yield client


@contextmanager
def start(target: Target, app: str, say: Callable[[str], None]) -> Generator[GatewayClient]:
    """A client of a stack that is started and drained at the end; it needs no key.

    Raises:
        HarnessError: The stack does not start, or another one runs in the home.
    """
    stack = open_stack(
        home=target.settings.home,
        app=app,
        coordinators=target.coordinators,
        tools=target.tools,
        env=target.env,
        only_for=target.command,
    )
    with stack as started, GatewayClient(started.gateway_url, "", patience_s=0) as client:
        yield client
        say("stopping the stack …")


@contextmanager
def attach(settings: Settings) -> Generator[GatewayClient]:
    """A client of the stack that the settings name, which must be running.

    Raises:
        StackUnreachable: None runs.
    """
    url = Addresses(settings).gateway_url
    if url is None:
        raise StackUnreachable(
            f"no stack runs in {settings.home}: name the home of a running one with --home, "
            "or its gateway with --url or HARNESS_GATEWAY_URL"
        )
    with GatewayClient(url, settings.gateway_key, patience_s=0) as client:
        yield client


def is_running(target: Target) -> bool:
    """Whether the target's stack is running now; one that ``reach`` started no longer runs once it was drained."""
    return Addresses(target.settings).gateway_url is not None


def _check_served(target: Target, served: str | None) -> None:
    """Refuse a stack that serves another app than the named one, because its agents' writes are real."""
    if target.app is not None and served is not None and target.app.strip() != served:
        raise ConfigError(
            f"the stack in {target.settings.home} serves {served}: leave --app out to ask that one, "
            "or choose another home with --home"
        )


def _nothing_runs(addresses: Addresses) -> str:
    return (
        f"no stack runs in {addresses.settings.home}. Start one in another terminal with\n"
        f"  harness up --app {ANY_APP}{addresses.home_option}\n"
        f"or add --app {ANY_APP} here to have one for this command, or name a running one with --url."
    )
