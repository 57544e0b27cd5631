"""What a drain would cut short, told when a worker starts."""

from __future__ import annotations

from collections.abc import Iterable

from harness_worker.adapters.celery.bootsteps import LAST_RESORT_S
from harness_worker.core.registration.tools import ToolSpec


def too_long(tools: Iterable[ToolSpec], grace_s: float) -> str | None:
    """A warning of the tools whose calls a drain may cut short for good, for they may not run twice.

    Args:
        tools: What a worker serves.
        grace_s: How long its drain takes, in seconds.

    Returns:
        One line; ``None`` if there is no such tool.
    """
    waits_s = max(0.0, grace_s - LAST_RESORT_S)
    cut = [each for each in tools if not each.retry_safe and each.delegation is None and each.timeout_s > waits_s]
    if not cut:
        return None
    names = ", ".join(sorted(each.name for each in cut))
    needed_s = max(each.timeout_s for each in cut) + LAST_RESORT_S
    return (
        f"a drain of this worker waits {waits_s:g} s, less than the timeout_s of {names}: calls cut short are not run "
        f"again, and whether a write happened is unknown; raise HARNESS_GRACE_S so that this worker has {needed_s:g} s"
    )
