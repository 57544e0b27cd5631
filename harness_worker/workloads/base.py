"""A workload: recorded tasks, the app that serves their tools, and the result of a plain replay of the tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from harness_worker.core.canonical import canonical
from harness_worker.core.registration.registry import Registry

BUDGET: Final[Mapping[str, int]] = {"max_steps": 100, "max_tool_calls": 200, "timeout_s": 300}
"""The budget of the agents that play recorded tasks."""

TOOL_TIMEOUT_S: Final = 30.0


class Half(StrEnum):
    """Which part of a workload: tasks whose SHA-256 is even are for development, the odd ones are held out."""

    DEV = "dev"
    HELDOUT = "heldout"
    ALL = "all"

    def holds(self, task_id: str) -> bool:
        """Whether a task belongs to this part."""
        even = int(hashlib.sha256(task_id.encode()).hexdigest(), 16) % 2 == 0
        return self is Half.ALL or even is (self is Half.DEV)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One correct action as the workload's authors recorded it.

    Args:
        tool: The tool's name.
        arguments: Its arguments.
        is_read: Whether the tool changes nothing.
    """

    tool: str
    arguments: Mapping[str, Any]
    is_read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTask:
    """One task: what the user wants, and the recorded calls that do it, in order.

    Args:
        id: Unique in the workload.
        input: What the user wants.
        calls: The recorded calls.
        messages: How many calls each message of the model holds; if the authors do not say, every run of reads and
            every run of writes is one message.
        category: The workload's category that it belongs to.
    """

    id: str
    input: str
    calls: tuple[RecordedCall, ...]
    messages: tuple[int, ...] | None = None
    category: str = ""


def session_of(task_id: str, run: str) -> str:
    """The session in which a task is worked on; tools can read the task's id from it.

    Args:
        task_id: The task.
        run: Makes the session unique; contains no dot.
    """
    return f"{task_id}.{run}"


def task_of(session_id: str) -> str:
    """The id of the task in a session's name made by :func:`session_of`."""
    return session_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one call as the model reads it, and whether it is an error."""

    content: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEffect:
    """A change of the workload's state: the tool that made it, and its arguments (canonical JSON)."""

    tool: str
    arguments: str

    @classmethod
    def of(cls, tool: str, arguments: Mapping[str, Any]) -> RecordedEffect:
        """The effect of a call."""
        return cls(tool=tool, arguments=canonical(dict(arguments)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The result of a task's calls, made one by one without the harness.

    Args:
        observations: One for each call, in order.
        effects: The changes, in the order in which they were made.
        final_state: A digest of the whole state after the last call.
    """

    observations: tuple[Observation, ...]
    effects: tuple[RecordedEffect, ...]
    final_state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One row of the effect journal; ``seq`` rises with each commit, over all turns."""

    seq: int
    turn_id: str
    call_id: str
    effect: RecordedEffect
    worker: str
    attempt: int
    idempotency_key: str
    observation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """What a turn left behind: its journal in order, and a digest of the whole state as the turn sees it."""

    journal: tuple[JournalRow, ...]
    final_state: str


class Workload(Protocol):
    """A set of recorded tasks and the app whose tools they call."""

    @property
    def name(self) -> str:
        """Its name on the command line, and the name of the agent that serves it."""
        ...

    @property
    def app(self) -> str:
        """The registry, as ``module:registry``."""
        ...

    @property
    def categories(self) -> Sequence[str]:
        """The names of its categories, the default one first; empty if it has none."""
        ...

    def registry(self) -> Registry:
        """The registry that ``app`` names, with the workload's own settings, for turns in this process."""
        ...

    def tasks(self) -> Sequence[WorkloadTask]:
        """Every task, in the authors' order."""
        ...

    def replay(self, task: WorkloadTask) -> ReplayOutcome:
        """The task's calls made one by one in a fresh environment of the authors, without the harness."""
        ...

    def observed(self, task: WorkloadTask, turn_id: str) -> ObservedState:
        """What the task's finished turn left in SQL."""
        ...
