"""The stack that a sweep runs on: its own, or a running one, whose home and database have to be found."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from harness_worker.client.client import GatewayClient, StackUnreachable
from harness_worker.config import Settings, load_settings
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.entrypoints.addresses import Addresses
from harness_worker.entrypoints.cli.target import Target, attach, start
from harness_worker.entrypoints.stack.home import Home
from harness_worker.errors import ConfigError
from harness_worker.urls import masked
from harness_worker.workloads.base import Workload
from harness_worker.workloads.places import home_of

SWEEPS = "sweeps"


def sweep_settings(url: str | None, home: Path | None, workload: str) -> Settings:
    """Settings with the stack's home and database, because tools and sweep must use the same state.

    Args:
        url: The gateway of a running stack; ``None``: the sweep starts one.
        home: Where the stack keeps its data.
        workload: The workload's name.

    Raises:
        ConfigError: The running stack does not serve the workload, or a new one's home cannot be used.
        StackUnreachable: Nothing answers at the URL.
    """
    if url is None:
        settings = load_settings(home=home or load_settings().home / SWEEPS / workload)
        Home(settings.home).prepare()
        return settings.model_copy(update={"gateway_url": None})
    settings = load_settings(home=home, gateway_url=url)
    if home is None:
        settings = load_settings(home=_home_at(settings, workload), gateway_url=url)
    return settings.model_copy(update={"database_url": Addresses(settings).database_url})


@contextmanager
def sweep_gateway(target: Target, workload: Workload, say: Callable[[str], None]) -> Generator[GatewayClient]:
    """A client of the target's gateway, if it names one; else of a stack that is started and drained at the end."""
    if target.settings.gateway_url is not None:
        with attach(target.settings) as client:
            yield _ready(client)
        return
    say(f"starting a stack in {target.settings.home} …")
    with start(target, workload.app, say) as client:
        yield client


def _ready(client: GatewayClient) -> GatewayClient:
    if not client.ready():
        shown = masked(client.base_url)
        raise StackUnreachable(f"the stack at {shown} is not ready: GET {shown}/readyz says why")
    return client


def _home_at(settings: Settings, workload: str) -> Path:
    """The home of a stack on this machine, found from its agent's model, which names the script there."""
    with attach(settings) as client:
        models = {agent["name"]: agent["model"] for agent in client.agents()}
    if workload not in models:
        raise ConfigError(
            f"the stack at {masked(client.base_url)} has no agent {workload}: start it with the workload's app, "
            "which `harness sweep run --help` names"
        )
    return home_of(Path(models[workload].removeprefix(SCRIPTED)))
