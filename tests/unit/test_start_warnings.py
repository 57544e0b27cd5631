"""What a worker says when it starts, for it would otherwise be learnt from the turns that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_worker import Effect, Registry
from harness_worker.entrypoints.worker.start_warnings import missing_models, too_long, unused_queues


def some_tool() -> str:
    """Do something."""
    return "done"


def test_write_that_outlasts_a_drain_and_may_not_run_twice_is_told() -> None:
    """Not a read, nor a write that is ``retry_safe``, nor one that a drain waits for, less 3 s for the end."""
    registry = Registry()
    registry.tool(name="read", effect=Effect.READ_ONLY, timeout_s=44)(some_tool)
    registry.tool(name="safe", effect=Effect.NETWORK, retry_safe=True, timeout_s=44)(some_tool)
    registry.tool(name="quick", effect=Effect.NETWORK)(some_tool)
    assert list(too_long(registry.tools.values(), 20.0)) == []
    registry.tool(name="pay", effect=Effect.NETWORK, timeout_s=44)(some_tool)
    (told,) = too_long(registry.tools.values(), 20.0)
    assert told.startswith("a drain of this worker waits 17 s, less than the timeout_s of pay: ")
    assert told.endswith("raise HARNESS_GRACE_S so that this worker has 47 s")
    assert list(too_long(registry.tools.values(), 47.0)) == []


def test_queue_that_no_tool_names_is_told() -> None:
    """A misspelt one would make a worker that does nothing."""
    assert list(unused_queues(["gpu"], ["gpu", "tools"])) == []
    assert list(unused_queues(["gpu", "gpus"], ["gpu", "tools"])) == [
        "no tool goes to gpus, which this worker serves; the tools' queues are gpu, tools"
    ]


def test_models_that_cannot_be_asked_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Claude without a key, of agents and judges; and scripts that are not there yet."""
    monkeypatch.chdir(tmp_path)
    Path("here.jsonl").touch()
    registry = Registry()
    registry.agent("a", model="claude-one")
    registry.agent("b", model="scripted:here.jsonl")
    assert list(missing_models(registry.models, has_key=True)) == []
    registry.judge("j", model="claude-two", criterion="Is it polite?")
    registry.agent("c", model="scripted:gone.jsonl")
    assert list(missing_models(registry.models, has_key=False)) == [
        "ANTHROPIC_API_KEY is not set: turns that need claude-one, claude-two will fail",
        f"there is no script gone.jsonl in {tmp_path}: turns that need it will fail until there is",
    ]
