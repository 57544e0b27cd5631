"""Loads the packages of the workloads' authors, by name, because they are optional."""

from __future__ import annotations

import importlib
from types import ModuleType

from harness_worker.bootstrap.extras import installing
from harness_worker.errors import ConfigError


def imported(module: str) -> ModuleType:
    """The module of that name.

    Raises:
        ConfigError: It is not installed; the message contains the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ConfigError(
            f"this workload needs a package that is not installed ({missing}): {installing('workloads')}"
        ) from missing
