"""The stack a sweep runs on: one of its own, or a running one, whose places have to be found out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness_worker.config import Settings, load_settings
from harness_worker.entrypoints.client import GatewayClient, StackUnreachable
from harness_worker.entrypoints.stack import open_stack, running_stack
from harness_worker.entrypoints.stack.home import Home
from harness_worker.errors import ConfigError
from harness_worker.urls import masked
from harness_worker.workloads.base import Workload
from harness_worker.workloads.places import home_of

SWEEPS = "sweeps"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackWish:
    """Which stack to use.

    Args:
        url: A running one's gateway; ``None`` starts one.
        home: Where the stack keeps its data.
        coordinators: Threads that wait on the model, of one that is started.
        tools: Processes that run tools, of one that is started.
        key: The running one's API key, if it asks for one.
    """

    url: str | None
    home: Path | None
    coordinators: int
    tools: int
    key: str | None = field(repr=False)


def sweep_settings(wish: StackWish, workload: str) -> Settings:
    """Settings whose home and database are those of the stack: tools and sweep must find the same state.

    Raises:
        ConfigError: The running stack does not serve the workload, or a new one's home cannot be used.
        StackUnreachable: Nothing answers at the URL.
    """
    if wish.url is not None:
        home = wish.home or _home_at(wish.url, wish.key, workload)
        running = running_stack(home)
        given = load_settings(home=home)
        if given.database_url or running is None:
            return given
        return load_settings(home=home, database_url=running.database_url)
    settings = load_settings(home=wish.home or load_settings().home / SWEEPS / workload)
    Home(settings.home).prepare()
    return settings


@contextmanager
def sweep_gateway(
    wish: StackWish, workload: Workload, settings: Settings, say: Callable[[str], None]
) -> Generator[GatewayClient]:
    """A client of the wished stack; one that had to be started is drained at the end."""
    if wish.url is not None:
        with GatewayClient(wish.url, wish.key) as client:
            yield _ready(client)
        return
    say(f"starting a stack in {settings.home} …")
    # The app reads its places from the environment, before the stack tells it which home it got.
    environment = {"HARNESS_HOME": str(settings.home.expanduser().absolute())}
    with (
        open_stack(
            home=settings.home, app=workload.app, coordinators=wish.coordinators, tools=wish.tools, env=environment
        ) as stack,
        GatewayClient(stack.gateway_url) as client,
    ):
        yield client
        say("stopping the stack …")


def _ready(client: GatewayClient) -> GatewayClient:
    if not client.ready():
        shown = masked(client.base_url)
        raise StackUnreachable(f"the stack at {shown} is not ready: GET {shown}/readyz says why")
    return client


def _home_at(url: str, key: str | None, workload: str) -> Path:
    """The home of a stack on this machine: the agent's model names the script in it."""
    with GatewayClient(url, key) as client:
        models = {agent["name"]: agent["model"] for agent in client.agents()}
    if workload not in models:
        raise ConfigError(
            f"the stack at {masked(url)} has no agent {workload}: start it with the workload's app, "
            "which `harness sweep run --help` names"
        )
    return home_of(Path(models[workload].removeprefix("scripted:")))
