"""Which tools a worker's drain would cut short for good, as is told when it starts."""

from __future__ import annotations

from harness_worker import Effect, Registry
from harness_worker.entrypoints.worker.long_calls import too_long


def some_tool() -> str:
    """Do something."""
    return "done"


def test_write_that_outlasts_a_drain_and_may_not_run_twice_is_told() -> None:
    """Not a read, nor a write that is ``retry_safe``, nor one that a drain waits for, less 3 s for the end."""
    registry = Registry()
    registry.tool(name="read", effect=Effect.READ_ONLY, timeout_s=44)(some_tool)
    registry.tool(name="safe", effect=Effect.NETWORK, retry_safe=True, timeout_s=44)(some_tool)
    registry.tool(name="quick", effect=Effect.NETWORK)(some_tool)
    assert too_long(registry.tools.values(), 20.0) is None
    registry.tool(name="pay", effect=Effect.NETWORK, timeout_s=44)(some_tool)
    told = too_long(registry.tools.values(), 20.0)
    assert told is not None
    assert told.startswith("a drain of this worker waits 17 s, less than the timeout_s of pay: ")
    assert told.endswith("raise HARNESS_GRACE_S so that this worker has 47 s")
    assert too_long(registry.tools.values(), 47.0) is None
