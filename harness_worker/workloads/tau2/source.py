"""The only module that uses the package ``tau2``, which is loaded on demand, by name, because it is optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast, get_args

from pydantic import BaseModel

from harness_worker.workloads.base import Observation, RecordedCall, WorkloadTask
from harness_worker.workloads.packages import imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One tau2 domain with its base database, loaded once per process and never changed.

    Args:
        name: ``retail`` or ``airline``.
        module: ``tau2.domains.NAME.environment``.
        base: The database, a pydantic model whose fields are mappings of records.
        policy: The text that tells the agent what it may do.
        records: The class of each collection's records.
        toolkit: The class of the domain's tools; accepts any object with the collections as attributes.
    """

    name: str
    module: ModuleType
    base: BaseModel
    policy: str
    records: Mapping[str, type[BaseModel]]
    toolkit: type[Any]

    def fresh(self) -> Any:  # noqa: ANN401 - tau2 has no types
        """A tau2 environment of its own, read from the package's files."""
        return self.module.get_environment()

    def over(self, db: object) -> Any:  # noqa: ANN401 - tau2 has no types
        """A tau2 environment whose tools work on ``db``."""
        return self.module.Environment(domain_name=self.name, policy=self.policy, tools=self.toolkit(db))

    def writes(self, tool: str) -> bool:
        """Whether a tool changes the database; reading, thinking and the generic tools (calculate, transfer) do not."""
        return self.toolkit(None).tool_type(tool).value == "write"


def load_domain(name: str) -> Domain:
    """Load a domain and its database.

    Raises:
        ConfigError: The package is not installed; the message contains the command that installs it.
    """
    module = _import(f"tau2.domains.{name}.environment")
    environment = module.get_environment()
    base = cast("BaseModel", environment.tools.db)
    return Domain(
        name=name,
        module=module,
        base=base,
        policy=environment.get_policy(),
        records={field: get_args(info.annotation)[1] for field, info in type(base).model_fields.items()},
        toolkit=cast("type[Any]", type(environment.tools)),
    )


def load_tasks(domain: Domain) -> tuple[WorkloadTask, ...]:
    """Every task with the agent's recorded actions."""
    return tuple(_task(domain, task) for task in domain.module.get_tasks())


def respond(environment: Any, tool: str, arguments: Mapping[str, Any]) -> Observation:  # noqa: ANN401 - tau2 has no types
    """Make one call as tau2 itself makes an agent's; its result or exception becomes text."""
    call = _import("tau2.data_model.message").ToolCall(
        id="call", name=tool, arguments=dict(arguments), requestor="assistant"
    )
    message = environment.get_response(call)
    return Observation(content=message.content, is_error=message.error)


def _task(domain: Domain, task: Any) -> WorkloadTask:  # noqa: ANN401 - tau2 has no types
    recorded: list[Any] | None = task.evaluation_criteria.actions if task.evaluation_criteria else None
    return WorkloadTask(
        id=task.id,
        input=str(task.user_scenario),
        calls=tuple(_recorded(domain, action) for action in recorded or () if action.requestor == "assistant"),
    )


def _recorded(domain: Domain, action: Any) -> RecordedCall:  # noqa: ANN401 - tau2 has no types
    return RecordedCall(tool=action.name, arguments=action.arguments, is_read=not domain.writes(action.name))


def _import(module: str) -> ModuleType:
    # tau2 logs each call and each missing .env; loguru must be configured before tau2 is imported.
    imported("loguru").logger.disable("tau2")
    return imported(module)
