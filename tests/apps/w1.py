"""The measuring workload W1: four reads of 10 ms side by side, two writes of 10 ms in order, then text."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Final

from harness_worker import Effect, Registry

BODY_S: Final = 0.010
SCRIPT: Final = Path(__file__).with_name("w1_script.jsonl")

registry = Registry()


@registry.tool(effect=Effect.READ_ONLY)
def read(number: int) -> int:
    """Wait 10 ms."""
    Event().wait(BODY_S)
    return number


@registry.tool(effect=Effect.LOCAL_WRITE)
def write(number: int) -> int:
    """Wait 10 ms."""
    Event().wait(BODY_S)
    return number


registry.agent("w1", model=f"scripted:{SCRIPT}", system="", tools=[read, write])
