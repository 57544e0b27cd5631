"""Wires up a tau2 domain: makes, from settings, the registry that workers serve and the workload that a sweep runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness_worker.config import Settings
from harness_worker.core.registration.effects import Effect
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.core.registration.registry import Registry
from harness_worker.workloads.base import BUDGET, TOOL_TIMEOUT_S
from harness_worker.workloads.places import Places, places
from harness_worker.workloads.prepare import prepared
from harness_worker.workloads.state import WorkloadState
from harness_worker.workloads.tau2.source import Domain, load_domain, load_tasks
from harness_worker.workloads.tau2.tools import reading_tool, writing_tool
from harness_worker.workloads.tau2.workload import Tau2Workload


def tau2_workload(name: str, settings: Settings) -> Tau2Workload:
    """The domain as a workload, with its tools and the agent that plays its recorded actions.

    Loads the base and writes the script.

    Args:
        name: ``retail`` or ``airline``.
        settings: They say where the script and the state are.

    Raises:
        ConfigError: The package is not installed.
        TransientError: The database does not answer.
    """
    domain = load_domain(name)
    where = places(settings, f"tau2-{name}")
    state = prepared(where, load_tasks(domain))
    return Tau2Workload(domain, state, partial(_registry, domain, where, state))


def _registry(domain: Domain, where: Places, state: WorkloadState) -> Registry:
    registry = Registry()
    names = [_add(registry, domain, state, tool) for tool in domain.over(domain.base).get_tools()]
    registry.agent(
        f"tau2-{domain.name}",
        model=f"{SCRIPTED}{where.script}",
        system=domain.policy,
        tools=names,
        budget=BUDGET,
    )
    return registry


def _add(registry: Registry, domain: Domain, state: WorkloadState, tool: Any) -> str:  # noqa: ANN401 - tau2 has no types
    function = tool.openai_schema["function"]
    writes = domain.writes(tool.name)
    return registry.add_tool(
        (writing_tool if writes else reading_tool)(domain, state, tool.name),
        name=tool.name,
        schema=function["parameters"],
        description=function["description"],
        effect=Effect.LOCAL_WRITE if writes else Effect.READ_ONLY,
        retry_safe=True,
        timeout_s=TOOL_TIMEOUT_S,
    )
