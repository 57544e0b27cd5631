"""Wires up BFCL: makes, from settings, the registry that workers serve and the workload that a sweep runs."""

from __future__ import annotations

from functools import partial
from typing import Final

from harness_worker.config import Settings
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.core.registration.registry import Registry
from harness_worker.workloads.base import BUDGET, TOOL_TIMEOUT_S
from harness_worker.workloads.bfcl.source import Bfcl, load_bfcl
from harness_worker.workloads.bfcl.tools import tool_of
from harness_worker.workloads.bfcl.workload import NAME, BfclWorkload
from harness_worker.workloads.places import Places, places
from harness_worker.workloads.prepare import prepared
from harness_worker.workloads.state import WorkloadState

SYSTEM: Final = "You act for the user by calling functions. Call them in the order in which they depend on each other."


def bfcl_workload(settings: Settings) -> BfclWorkload:
    """The tasks as a workload, with the domain classes' methods and the agent that plays the recorded calls.

    Loads the tasks and writes the script.

    Args:
        settings: They say where the script and the state are.

    Raises:
        ConfigError: The package is not installed.
        TransientError: The database does not answer.
    """
    bfcl, where = load_bfcl(), places(settings, NAME)
    state = prepared(where, bfcl.tasks)
    return BfclWorkload(bfcl, state, partial(registry_over, bfcl, where, state))


def registry_over(bfcl: Bfcl, where: Places, state: WorkloadState) -> Registry:
    """The tools over this state, and the agent that plays the script."""
    registry = Registry()
    for function in bfcl.functions.values():
        registry.add_tool(
            tool_of(bfcl, state, function),
            name=function.name,
            schema=function.schema,
            description=function.description,
            # The authors do not say what a method changes, so its effect is unknown and calls run one after the other.
            effect=None,
            retry_safe=True,
            timeout_s=TOOL_TIMEOUT_S,
        )
    registry.agent(NAME, model=f"{SCRIPTED}{where.script}", system=SYSTEM, tools=list(bfcl.functions), budget=BUDGET)
    return registry
