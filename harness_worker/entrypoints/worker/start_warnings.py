"""Warnings when a worker starts about tools, queues and models that will not work; it serves them all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness_worker.adapters.celery.bootsteps import LAST_RESORT_S
from harness_worker.core.registration.model_names import SCRIPTED
from harness_worker.core.registration.tools import ToolSpec


def too_long(tools: Iterable[ToolSpec], grace_s: float) -> Iterator[str]:
    """A line about tools whose calls a drain may cut short for good, because they may not run twice.

    Args:
        tools: The tools that the worker serves.
        grace_s: How long its drain may take, in seconds.
    """
    waits_s = max(0.0, grace_s - LAST_RESORT_S)
    cut = [each for each in tools if not each.retry_safe and each.delegation is None and each.timeout_s > waits_s]
    if not cut:
        return
    names = ", ".join(sorted(each.name for each in cut))
    needed_s = max(each.timeout_s for each in cut) + LAST_RESORT_S
    yield (
        f"a drain of this worker waits {waits_s:g} s, less than the timeout_s of {names}: calls cut short are not run "
        f"again, and whether a write happened is unknown; raise HARNESS_GRACE_S so that this worker has {needed_s:g} s"
    )


def unused_queues(served: Iterable[str], used: Iterable[str]) -> Iterator[str]:
    """A line about queues that a tool worker serves but that no tool uses: they may be misspelt.

    Args:
        served: The worker's queues.
        used: The queues that the app's tools name.
    """
    if unused := sorted({*served} - {*used}):
        yield f"no tool goes to {', '.join(unused)}, which this worker serves; the tools' queues are {', '.join(used)}"


def missing_models(models: Iterable[str], *, has_key: bool) -> Iterator[str]:
    """A line for each kind of model whose turns would fail.

    Args:
        models: The models that agents, their memories and judges name.
        has_key: Whether there is an API key for Claude.
    """
    named = sorted(models)
    claude = [model for model in named if not model.startswith(SCRIPTED)]
    if claude and not has_key:
        yield f"ANTHROPIC_API_KEY is not set: turns that need {', '.join(claude)} will fail"
    files = [model.removeprefix(SCRIPTED) for model in named if model.startswith(SCRIPTED)]
    absent = [file for file in files if not Path(file).is_file()]
    if absent:
        yield f"there is no script {', '.join(absent)} in {Path.cwd()}: turns that need it will fail until there is"
