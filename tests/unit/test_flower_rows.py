"""How Flower's rows read, and whom it forgets."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness_worker.adapters.flower.rows import readable
from harness_worker.adapters.flower.server import PURGE_OFFLINE_AFTER_S, look_around

TURN = "01a20097-bb8a-7667-a144-15bd34a9e0fb"


@dataclass(kw_only=True)
class Task:
    """What Flower knows of a task."""

    args: str | None
    kwargs: str | None
    name: str | None = "turn.advance"


@pytest.mark.parametrize(
    ("args", "kwargs", "shown"),
    [
        (f"('{TURN}',)", "{}", (f"turn {TURN}", "")),
        (f"(turn={TURN})", "(tenant=default)", (f"turn {TURN}", "")),
        (
            "()",
            str({"turn": TURN, "tenant": "default", "call": "1.2", "attempt": 3}),
            (f"turn {TURN}", "call 1.2, attempt 3"),
        ),
        (f"('{TURN}', 'brief')", "{}", (f"turn {TURN}", "judge brief")),
        (f"('{TURN}', ':memory')", "{}", (f"turn {TURN}", "judge :memory")),
        ("('note-assam-1',)", "{}", ("turn note-assam-1", "")),
        ("('note.1', 'brief')", "{}", ("turn note.1", "judge brief")),
        ("(turn=note-assam-1)", "(tenant=default)", ("turn note-assam-1", "")),
        (
            "()",
            str({"turn": "note-assam-1", "tenant": "default", "call": "1.2", "attempt": 3}),
            ("turn note-assam-1", "call 1.2, attempt 3"),
        ),
        ("()", str({"turn": "note-assam-1"}), ("turn note-assam-1", "")),
        ("()", str({"turn": "no id"}), ("()", str({"turn": "no id"}))),
        ("(1, 2)", "{'a': 'b'}", ("(1, 2)", "{'a': 'b'}")),
        (None, None, (None, None)),
    ],
)
def test_row_says_whose_it_is(args: str | None, kwargs: str | None, shown: tuple[str | None, str | None]) -> None:
    """Ours read as turn, call and attempt or judge, whoever sent them and chose the id; others stay as they are."""
    task = readable(Task(args=args, kwargs=kwargs))
    assert (task.args, task.kwargs) == shown


@pytest.mark.parametrize("name", ["orders.done", "turn.advanced_report", None])
def test_row_of_somebody_elses_task_stays_as_it_is(name: str | None) -> None:
    """A producer's own worker on the same broker is seen too; its arguments are no turns."""
    task = readable(Task(name=name, args=f"('{TURN}', 'paid')", kwargs="{}"))
    assert (task.args, task.kwargs) == (f"('{TURN}', 'paid')", "{}")


@dataclass(kw_only=True)
class Watcher:
    """Flower, as far as it is asked who is there."""

    answers: set[str]
    workers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    async def update_workers(self) -> None:
        """Take down who answers."""
        self.workers.update({name: {"timestamp": time.time()} for name in self.answers})


def test_worker_that_is_gone_is_forgotten() -> None:
    """A worker that has not answered for long is no longer listed; one that answers is, and so is a silent one."""
    watcher = Watcher(answers={"tools-2@host"})
    watcher.workers["tools-1@host"] = {"timestamp": time.time() - PURGE_OFFLINE_AFTER_S - 1}
    watcher.workers["tools-3@host"] = {"timestamp": time.time() - PURGE_OFFLINE_AFTER_S / 2}
    asyncio.run(look_around(watcher))
    assert set(watcher.workers) == {"tools-2@host", "tools-3@host"}
