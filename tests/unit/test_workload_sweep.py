from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from harness_worker.core.registration.registry import Registry
from harness_worker.errors import ConfigError
from harness_worker.workloads.base import (
    Half,
    Observation,
    ObservedState,
    RecordedCall,
    RecordedEffect,
    ReplayOutcome,
    WorkloadTask,
    session_of,
    task_of,
)
from harness_worker.workloads.report import observation_lines, summary
from harness_worker.workloads.sweep import Sweep
from harness_worker.workloads.verdict import FinishedTurn, Verdict

TASKS = tuple(
    WorkloadTask(id=str(n), input="look", calls=(RecordedCall(tool="look", arguments={"n": n}, is_read=True),))
    for n in range(6)
)


class Toy:
    """A workload of one read a task."""

    name = "toy"
    app = "nowhere:registry"
    categories: tuple[str, ...] = ()

    def registry(self) -> Registry:
        """Not used here."""
        return Registry()

    def tasks(self) -> tuple[WorkloadTask, ...]:
        """Six tasks."""
        return TASKS

    def replay(self, task: WorkloadTask) -> ReplayOutcome:
        """What was seen is the task's id."""
        return ReplayOutcome(
            observations=(Observation(content=task.id, is_error=False),), effects=(), final_state="unchanged"
        )

    def observed(self, task: WorkloadTask, turn_id: str) -> ObservedState:
        """Nothing was changed."""
        del task, turn_id
        return ObservedState(journal=(), final_state="unchanged")


class Player:
    """Answers each task's call with its id, except one task's; counts how many turns ran at once."""

    def __init__(self, wrong: str | None = None, broken: str | None = None) -> None:
        self._wrong = wrong
        self._broken = broken
        self._lock = threading.Lock()
        self._meet = threading.Barrier(3, timeout=10)
        self._now = 0
        self.most = 0

    def run(self, agent: str, task: WorkloadTask) -> FinishedTurn:
        """One turn."""
        assert agent == "toy"
        if task.id == self._broken:
            raise ConnectionError("no stack")
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        if self._broken is None:
            self._meet.wait()
        with self._lock:
            self._now -= 1
        return _turn(task, "nonsense" if task.id == self._wrong else task.id)


class Notes:
    """Remembers the verdicts it was told."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def found(self, task: WorkloadTask, verdict: Verdict) -> None:
        """One more."""
        assert verdict.task == task
        self.verdicts.append(verdict)

    def tick(self) -> None:
        """Nothing."""


def _turn(task: WorkloadTask, content: str) -> FinishedTurn:
    use = {"type": "tool_use", "id": "use", "name": "look"}
    result = {"type": "tool_result", "tool_use_id": "use", "content": content}
    call = {
        "call_id": "0.0",
        "tool_use_id": "use",
        "tool": "look",
        "arguments": dict(task.calls[0].arguments),
        "content": content,
        "is_error": False,
        "step": 0,
        "wave": 0,
        "attempt": 1,
    }
    return FinishedTurn(
        id=f"turn-{task.id}",
        status="completed",
        stop_reason="end_turn",
        error=None,
        calls=(call,),
        messages=({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}),
    )


def test_sweep_passes_if_every_task_does():
    """All tasks run, as many at once as allowed, and each verdict is told once."""
    player, notes = Player(), Notes()
    result = Sweep(Toy(), Half.ALL, concurrency=3).run(player, notes)
    assert result.passed
    assert player.most == 3
    assert sorted(verdict.task.id for verdict in notes.verdicts) == [task.id for task in TASKS]
    assert [line["task"] for line in observation_lines(result)] == [task.id for task in TASKS]
    found = summary(result)
    assert (found["tasks"], found["expected"], found["passed"], found["calls"], found["waves"]) == (6, 6, 6, 6, 6)


def test_sweep_fails_if_one_task_does():
    """One wrong observation fails the sweep and is named with its task."""
    result = Sweep(Toy(), Half.ALL, concurrency=3).run(Player(wrong="4"), Notes())
    found = summary(result)
    assert not result.passed
    assert (found["passed"], [failure["task"] for failure in found["failures"]]) == (5, ["4"])
    assert "nonsense" in found["failures"][0]["why"][0]


def test_sweep_ends_when_the_stack_is_gone():
    """An error that is not a task's own ends the sweep and comes out."""
    with pytest.raises(ConnectionError, match="no stack"):
        Sweep(Toy(), Half.ALL, concurrency=1).run(Player(broken="0"), Notes())


def test_ctrl_c_waits_for_no_turn():
    """A gateway may hang: what is under way keeps neither the sweep nor the process, and nothing more is begun."""
    began, at_work, over = list[str](), list[threading.Thread](), threading.Event()

    class Hanging:
        def run(self, agent: str, task: WorkloadTask) -> FinishedTurn:
            began.append(f"{agent} {task.id}")
            at_work.append(threading.current_thread())
            over.wait(60.0)
            return _turn(task, task.id)

    class Stopper(Notes):
        def tick(self) -> None:
            if len(at_work) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Sweep(Toy(), Half.ALL, concurrency=2).run(Hanging(), Stopper())
    assert [(thread.name, thread.is_alive(), thread.daemon) for thread in at_work] == [("sweep", True, True)] * 2
    over.set()
    for thread in at_work:
        thread.join(20.0)
    assert sorted(began) == ["toy 0", "toy 1"]


def test_sweep_takes_a_half_and_a_limit():
    """The halves share no task, and the limit takes the first ones."""
    dev, heldout = (Sweep(Toy(), half, 1).tasks for half in (Half.DEV, Half.HELDOUT))
    assert sorted([*dev, *heldout], key=lambda task: task.id) == list(TASKS)
    assert list(Sweep(Toy(), Half.ALL, 1, limit=2).tasks) == list(TASKS[:2])


class Parted(Toy):
    """Two categories, of which the first has the first four tasks."""

    categories = ("plain", "long")

    def tasks(self) -> tuple[WorkloadTask, ...]:
        """Six tasks."""
        return tuple(replace(task, category="long" if task.id in "45" else "plain") for task in TASKS)


@pytest.mark.parametrize(
    ("category", "expected"), [(None, "0123"), ("plain", "0123"), ("long", "45"), ("all", "012345")]
)
def test_sweep_takes_a_category(category: str | None, expected: str):
    """The first category if none is named."""
    assert "".join(task.id for task in Sweep(Parted(), Half.ALL, 1, category=category).tasks) == expected


@pytest.mark.parametrize("workload", [Toy(), Parted()])
def test_sweep_refuses_a_category_that_there_is_not(workload: Toy):
    """The message names the workload and what there is."""
    with pytest.raises(ConfigError, match="toy has no category 'short'"):
        Sweep(workload, Half.ALL, 1, category="short")


def test_session_names_its_task():
    """A tool learns from the session which task it serves, whatever is in the task's id."""
    assert task_of(session_of("a.b_0", "f00")) == "a.b_0"


def test_effect_is_the_same_for_equal_arguments():
    """The order of keys is no difference."""
    assert RecordedEffect.of("put", {"a": 1, "b": 2}) == RecordedEffect.of("put", {"b": 2, "a": 1})
