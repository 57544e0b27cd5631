"""Asking a stack's Flower, as tests do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx2

from harness_worker.entrypoints.stack import StackInfo
from harness_worker.testing.waiting import wait_until

SHOP: Final = "harness_worker.demo.shop:registry"


def flower(stack: StackInfo, path: str) -> httpx2.Response:
    """Flower's answer to a request at the address that the stack reports."""
    assert stack.flower_url is not None
    return httpx2.get(f"{stack.flower_url}{path}", timeout=20, trust_env=False)


def await_listening(stack: StackInfo) -> None:
    """Wait until Flower has heard of both workers, and has their answers.

    What happens before it listens it never shows, and what is not answered within a second it asks for again later.
    """

    def knows_both() -> bool:
        heard, told = (flower(stack, f"/api/workers{query}").json() for query in ("?status=1", ""))
        return len(heard) == 2 and [{"stats", "active_queues"} <= said.keys() for said in told.values()] == [True] * 2

    wait_until(knows_both, "Flower to listen", 60)


def tasks_of(stack: StackInfo, turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tasks that Flower shows for a turn, once it has seen all of its calls.

    A message that waits in the queue may be sent again, so a call may be seen twice.
    """

    def seen() -> list[dict[str, Any]] | None:
        tasks = [task for task in flower(stack, "/api/tasks").json().values() if turn["id"] in _said(task)]
        ended = {task["kwargs"] for task in tasks if task["name"].startswith("tool.") and task["state"] == "SUCCESS"}
        return tasks if len(ended) == len(turn["calls"]) else None

    return wait_until(seen, "Flower to show the turn's calls", 60)


def _said(task: Mapping[str, Any]) -> str:
    """What Flower shows of a task's arguments."""
    return f"{task['args']} {task['kwargs']}"
