"""What a stack consists of: its children's commands and environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness_worker.adapters.embedded.ports import LOOPBACK
from harness_worker.adapters.embedded.valkey import find_server, server_command
from harness_worker.config import Settings, environment
from harness_worker.entrypoints.flower_access import VARIABLE as FLOWER_AUTH
from harness_worker.entrypoints.flower_access import FlowerAccess
from harness_worker.entrypoints.stack.child import CLI, ChildSpec
from harness_worker.entrypoints.stack.drain import CHILD_GRACE_SHARE
from harness_worker.entrypoints.stack.home import Home
from harness_worker.entrypoints.stack.killing import MARK
from harness_worker.entrypoints.worker.roles import Role
from harness_worker.errors import ConfigError
from harness_worker.urls import in_url

_WEBHOOK_KEY: Final = "HARNESS_WEBHOOK_SECRET"
_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerPlan:
    """Flower as part of a stack.

    Args:
        port: The port to serve on; 0 picks a free one.
        access: The user and password that it asks for.
    """

    port: int
    access: FlowerAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """What ``harness up`` is to run.

    Args:
        settings: The worker's settings.
        port: The gateway's; 0 picks a free one.
        coordinators: Threads of the coordinator process.
        tools: Processes of the tool worker's pool; 0 starts none.
        flower: Flower, if it was requested.
        only_for: The command that started the stack for itself, if one did.
        lock: The descriptor of the home's lock, which that command took and handed over.
    """

    settings: Settings
    port: int
    coordinators: int
    tools: int
    flower: FlowerPlan | None = None
    only_for: str | None = None
    lock: int | None = None

    @property
    def home(self) -> Home:
        """Where the stack keeps its data."""
        return Home(self.settings.home)

    @property
    def app(self) -> str:
        """The registry to serve.

        Raises:
            ConfigError: None was named.
        """
        if self.settings.app is None:
            raise ConfigError(
                "no agents to serve: name your registry with --app package.module:registry or HARNESS_APP "
                "(the working directory is importable; `--app harness_worker.demo.shop:registry` is an example)"
            )
        return self.settings.app

    @property
    def database_url(self) -> str:
        """The database's URL, usable from any working directory."""
        given = self.settings.database_url
        if given is None:
            return self.home.database_url
        if given.startswith(_SQLITE):
            return _SQLITE + str(Path(in_url(Path.cwd())) / given.removeprefix(_SQLITE))
        return given


def redis_spec(plan: StackPlan, port: int) -> ChildSpec:
    """The embedded server, with its data and its password in the home.

    Raises:
        ConfigError: No server program was found.
    """
    home = plan.home
    command = server_command(find_server(), port=port, directory=home.valkey, durable=True, file=home.valkey_file)
    return ChildSpec(role="redis", command=tuple(command), environment={**environment(), MARK: str(home.path)})


def service_specs(plan: StackPlan, redis_url: str, descriptor: int) -> list[ChildSpec]:
    """The gateway and the workers.

    Args:
        plan: What to run.
        redis_url: The Redis that they share.
        descriptor: The gateway's listening socket.
    """
    shared = _environment(plan, redis_url)
    gateway = ChildSpec(
        role="gateway",
        command=(*CLI, "gateway", "--host", LOOPBACK, "--fd", str(descriptor)),
        environment=_for_one_machine(plan, shared),
        descriptors=(descriptor,),
    )
    sizes = {Role.COORDINATOR: plan.coordinators, Role.TOOLS: plan.tools}
    return [gateway, *(_worker(plan, role, size, shared) for role, size in sizes.items() if size > 0)]


def _for_one_machine(plan: StackPlan, shared: Mapping[str, str]) -> dict[str, str]:
    """The gateway's environment, with defaults for clients and webhook receivers on this machine."""
    given = plan.settings.webhook_secret
    secret = plan.home.webhook_secret() if given is None else given.get_secret_value()
    usual = {"HARNESS_DEV_KEYLESS": "1", "HARNESS_WEBHOOK_PRIVATE": "1"}
    return {**usual, **shared, _WEBHOOK_KEY: secret}


def flower_spec(plan: StackPlan, access: FlowerAccess, redis_url: str, descriptor: int) -> ChildSpec:
    """Flower. It gets its password in its environment, which other users cannot read, unlike its arguments.

    Args:
        plan: What to run.
        access: The user and password that it asks for.
        redis_url: The Redis whose queues it watches.
        descriptor: Its listening socket.
    """
    options = ("--host", LOOPBACK, "--fd", str(descriptor), "--ready-file", str(plan.home.ready_file("flower")))
    return ChildSpec(
        role="flower",
        command=(*CLI, "flower", *options),
        environment={**_environment(plan, redis_url), FLOWER_AUTH: access.credentials},
        descriptors=(descriptor,),
    )


def _worker(plan: StackPlan, role: Role, concurrency: int, shared: Mapping[str, str]) -> ChildSpec:
    ready_file = str(plan.home.ready_file(role))
    options = ("--role", role, "--concurrency", str(concurrency), "--ready-file", ready_file)
    return ChildSpec(role=role, command=(*CLI, "worker", *options), environment=shared)


def _environment(plan: StackPlan, redis_url: str) -> dict[str, str]:
    home = plan.home
    given = environment()
    given.pop(_WEBHOOK_KEY, None)  # only for the gateway, because tools do what models choose
    return {
        **given,
        "HARNESS_APP": plan.app,
        "HARNESS_HOME": str(home.path),
        "HARNESS_REDIS_URL": redis_url,
        "HARNESS_DATABASE_URL": plan.database_url,
        "HARNESS_ARTIFACT_URL": plan.settings.artifact_url or home.artifact_url,
        "HARNESS_GRACE_S": str(plan.settings.grace_s * CHILD_GRACE_SHARE),
        "PYTHONUNBUFFERED": "1",
        MARK: str(home.path),
    }
