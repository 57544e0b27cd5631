"""A task's instances of the domain classes: making them, calling them, and a digest of their state."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from harness_worker.core.canonical import canonical, sha256_of
from harness_worker.core.outcomes import content_of, is_error
from harness_worker.core.tool_results import outcome_of_exception, outcome_of_return
from harness_worker.workloads.base import Observation
from harness_worker.workloads.bfcl.source import Bfcl, Scenario


def fresh(bfcl: Bfcl, scenario: Scenario, name: str) -> Any:  # noqa: ANN401 - BFCL has no types
    """A new instance of a domain class, as the scenario wants it."""
    instance = bfcl.classes[name]()
    # The one class without state has nothing to load.
    if hasattr(instance, "_load_scenario"):
        config = copy.deepcopy(scenario.config.get(name, {}))
        instance._load_scenario(config, long_context=scenario.long_context)  # noqa: SLF001 - as BFCL itself does
    # Padding comes from the module's own tables: without a copy, one task's changes would reach the next.
    return copy.deepcopy(instance)


def respond(instance: Any, tool: str, arguments: Mapping[str, Any]) -> Observation:  # noqa: ANN401 - BFCL has no types
    """Make one call; its result or exception is worded as the harness words it."""
    try:
        # A copy, because some methods keep the lists they are given and change them later.
        value = getattr(instance, tool)(**copy.deepcopy(dict(arguments)))
    except Exception as error:  # noqa: BLE001 - never raises: a method may raise anything, and that is its answer
        outcome = outcome_of_exception("", tool, error, elapsed_ms=0.0)
    else:
        outcome = outcome_of_return("", tool, value, elapsed_ms=0.0)
    return Observation(content=content_of(outcome), is_error=is_error(outcome))


def digest(instances: Mapping[str, object]) -> str:
    """The SHA-256 of the public attributes of a task's instances, as canonical JSON."""
    return sha256_of({name: _public(instance) for name, instance in instances.items()})


def _public(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _public(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_public(item) for item in cast("list[object]", value)]
    if isinstance(value, set):
        return sorted((_public(item) for item in cast("set[object]", value)), key=canonical)
    if hasattr(value, "__dict__"):
        # Left out, because a directory's parent holds the directory in turn.
        kept = {key: item for key, item in vars(value).items() if not key.startswith("_") and key != "parent"}
        return {key: _public(item) for key, item in kept.items()}
    return repr(value) if value is ... else value
