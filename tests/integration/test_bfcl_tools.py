"""BFCL's methods over SQL, called one after another as a worker does, compared with BFCL's own instances."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from harness_worker.adapters.sql.engine import make_engine
from harness_worker.core.registration.registry import Registry
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ArgumentsInvalid, ToolError
from harness_worker.workloads.base import Half, Observation, RecordedCall, WorkloadTask, session_of
from harness_worker.workloads.bfcl.serve import registry_over
from harness_worker.workloads.bfcl.snapshot import freeze
from harness_worker.workloads.bfcl.source import CATEGORIES, Bfcl, load_bfcl
from harness_worker.workloads.bfcl.workload import BfclWorkload
from harness_worker.workloads.bfcl.world import fresh
from harness_worker.workloads.places import Places
from harness_worker.workloads.state import WorkloadState

COUNTS = {"base": (200, 1142), "long_context": (200, 1203), "miss_func": (200, 1140), "miss_param": (200, 1140)}
SAMPLE = 8
"""Tasks of a category replayed here; the sweep replays all."""


@pytest.fixture(scope="module")
def bfcl() -> Bfcl:
    """The classes and tasks of the package."""
    return load_bfcl()


@pytest.fixture
def workload(bfcl: Bfcl, database_url: str) -> Iterator[BfclWorkload]:
    """The workload, with database tables of its own."""
    engine = make_engine(database_url)
    state = WorkloadState(engine)
    state.create()
    where = Places(script=Path("unused.jsonl"), database_url=database_url)
    yield BfclWorkload(bfcl, state, partial(registry_over, bfcl, where, state))
    engine.dispose()


def _context(task: WorkloadTask, number: int, session_id: str | None = None) -> RunContext:
    return RunContext.for_tests(
        turn_id=f"turn-{task.id}",
        call_id=f"0.{number}",
        session_id=session_id or session_of(task.id, "test"),
        idempotency_key=f"{task.id}:{number}",
    )


def _observe(registry: Registry, call: RecordedCall, ctx: RunContext) -> Observation:
    """What the model reads of a call, in the harness's form."""
    spec = registry.tools[call.tool]
    try:
        arguments = spec.bind(dict(call.arguments)).values
        return Observation(content=str(spec.invoke(arguments, ctx)), is_error=False)
    except ArgumentsInvalid as invalid:
        return Observation(content=f"denied: validation: {invalid}", is_error=True)
    except ToolError as failed:
        return Observation(content=str(failed), is_error=True)


def _play(workload: BfclWorkload, task: WorkloadTask, times: int) -> tuple[Observation, ...]:
    """The answer to the last delivery of each call, of which there are so many."""
    registry = workload.registry()
    return tuple(
        [_observe(registry, call, _context(task, number)) for _ in range(times)][-1]
        for number, call in enumerate(task.calls)
    )


def _sample(workload: BfclWorkload, category: str) -> list[WorkloadTask]:
    """Every tenth task of the development half, so that each domain class has some."""
    held = [task for task in workload.tasks() if task.category == category and Half.DEV.holds(task.id)]
    return list(islice(held, 0, None, len(held) // SAMPLE))


@pytest.mark.parametrize("deliveries", [1, 2])
@pytest.mark.parametrize("category", ["base", "long_context"])
def test_bfcl_tools_equal_the_plain_replay(workload: BfclWorkload, category: str, deliveries: int):
    """Every result, the order of effects and the final state equal BFCL's own, even if each call is delivered twice."""
    for task in _sample(workload, category):
        expected = workload.replay(task)
        assert _play(workload, task, deliveries) == expected.observations
        found = workload.observed(task, f"turn-{task.id}")
        assert tuple(row.effect for row in found.journal) == expected.effects
        assert found.final_state == expected.final_state


def test_bfcl_replay_tells_a_lost_call(workload: BfclWorkload):
    """The comparison can fail: doing nothing is not taken for having made the recorded calls."""
    task = workload.tasks()[0]
    expected, found = workload.replay(task), workload.observed(task, "a turn that never was")
    assert expected.effects
    assert found.journal == ()
    assert found.final_state != expected.final_state


def test_bfcl_call_with_wrong_arguments_is_not_made(workload: BfclWorkload):
    """A recorded call that does not fit the function's schema is refused by the replay and by the tool alike."""
    task = next(task for task in workload.tasks() if task.id == "multi_turn_base_173")
    expected = workload.replay(task)
    refused = [each for each in expected.observations if each.is_error]
    assert [each.content.partition(": ticket_id")[0] for each in refused] == ["denied: validation"]
    assert "close_ticket" not in {effect.tool for effect in expected.effects}
    assert _play(workload, task, 1) == expected.observations


def test_bfcl_replay_leaves_the_recorded_calls_alone(workload: BfclWorkload):
    """A method that keeps a list argument and extends it later gets its own copy of the list."""
    task = next(task for task in workload.tasks() if task.id == "multi_turn_base_90")
    before = repr(task)
    workload.replay(task)
    assert repr(task) == before


def test_bfcl_instances_share_nothing(bfcl: Bfcl):
    """A task may change the padding of a long context, which its module owns; no other task sees that."""
    task = next(task for task in bfcl.tasks if task.category == "long_context" and _flies(bfcl, task))
    first, second = (fresh(bfcl, bfcl.scenarios[task.id], "TravelAPI") for _ in range(2))
    before = freeze(second)
    for card in first.credit_card_list.values():
        card["balance"] = -1
    assert freeze(second) == before == freeze(fresh(bfcl, bfcl.scenarios[task.id], "TravelAPI"))


def _flies(bfcl: Bfcl, task: WorkloadTask) -> bool:
    return "TravelAPI" in bfcl.scenarios[task.id].involved


def test_bfcl_tasks_are_those_of_the_package(workload: BfclWorkload):
    """There are as many tasks and calls as the package records, and a user turn's calls are one message."""
    tasks = workload.tasks()
    for category in CATEGORIES:
        found = [task for task in tasks if task.category == category]
        assert (len(found), sum(len(task.calls) for task in found)) == COUNTS[category]
    assert all(sum(task.messages or ()) == len(task.calls) for task in tasks)
    assert max(max(task.messages or (0,)) for task in tasks if task.category == "long_context") == 34


def test_bfcl_tool_needs_a_session_that_names_a_task(workload: BfclWorkload):
    """Without a task there is no state to work on; the error says what to do."""
    task = workload.tasks()[0]
    observation = _observe(workload.registry(), task.calls[0], _context(task, 0, session_id="somebody"))
    assert observation.is_error
    assert "multi_turn_base_0.1" in observation.content
