"""The workloads by name; a new one is added by a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from harness_worker.config import Settings
from harness_worker.errors import ConfigError
from harness_worker.workloads.base import Workload
from harness_worker.workloads.bfcl.serve import bfcl_workload
from harness_worker.workloads.tau2.serve import tau2_workload

WORKLOADS: Final[Mapping[str, Callable[[Settings], Workload]]] = {
    "tau2-retail": partial(tau2_workload, "retail"),
    "tau2-airline": partial(tau2_workload, "airline"),
    "bfcl-multi-turn": bfcl_workload,
}


def require_workload(name: str) -> None:
    """Check a workload's name.

    Raises:
        ConfigError: There is no workload of that name.
    """
    if name not in WORKLOADS:
        raise ConfigError(f"unknown workload {name!r}; there are: {', '.join(sorted(WORKLOADS))}")
