"""The tools of tau2 with their state in SQL, called one by one and compared with tau2's own environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness_worker.core.registration.registry import Registry
from harness_worker.core.run_context import RunContext
from harness_worker.errors import ToolError
from harness_worker.workloads.base import Half, Observation, RecordedCall, WorkloadTask
from harness_worker.workloads.state import WorkloadState
from harness_worker.workloads.tau2.overlay import View, as_text, from_text
from harness_worker.workloads.tau2.source import Domain, load_domain
from harness_worker.workloads.tau2.tools import reading_tool, writing_tool
from harness_worker.workloads.tau2.workload import Tau2Workload

COUNTS = {"retail": (114, 553, 178), "airline": (50, 148, 55)}
SAMPLE = 5
"""Tasks replayed here; the sweep replays all."""


@pytest.fixture(scope="module", params=["retail", "airline"])
def domain(request: pytest.FixtureRequest) -> Domain:
    """One tau2 domain."""
    return load_domain(request.param)


def _workload(domain: Domain, state: WorkloadState) -> Tau2Workload:
    return Tau2Workload(domain, state, Registry)


def _context(task: WorkloadTask, number: int) -> RunContext:
    return RunContext.for_tests(turn_id=f"turn-{task.id}", call_id=f"0.{number}", idempotency_key=f"{task.id}:{number}")


def _observe(tool: Callable[[dict[str, Any], RunContext], str], call: RecordedCall, ctx: RunContext) -> Observation:
    try:
        return Observation(content=tool(dict(call.arguments), ctx), is_error=False)
    except ToolError as failed:
        return Observation(content=str(failed), is_error=True)


def _play(domain: Domain, state: WorkloadState, task: WorkloadTask, times: int) -> tuple[Observation, ...]:
    """The answer to the last delivery of each call, of which there are so many."""
    seen = list[Observation]()
    for number, call in enumerate(task.calls):
        tool = (reading_tool if call.is_read else writing_tool)(domain, state, call.tool)
        answers = [_observe(tool, call, _context(task, number)) for _ in range(times)]
        seen.append(answers[-1])
    return tuple(seen)


@pytest.mark.one_database("sqlite")
@pytest.mark.parametrize("deliveries", [1, 2])
def test_tau2_tools_equal_the_plain_replay(domain: Domain, state: WorkloadState, deliveries: int):
    """Every result, the order of effects and the final state equal tau2's own, even if each call is delivered twice."""
    workload = _workload(domain, state)
    for task in _sample(workload.tasks()):
        expected = workload.replay(task)
        assert _play(domain, state, task, deliveries) == expected.observations
        found = workload.observed(task, f"turn-{task.id}")
        assert tuple(row.effect for row in found.journal) == expected.effects
        assert found.final_state == expected.final_state


def test_tau2_replay_tells_a_lost_write(domain: Domain, state: WorkloadState):
    """The comparison can fail: doing nothing is not taken for having done a task's writes."""
    workload = _workload(domain, state)
    task = next(task for task in workload.tasks() if any(not call.is_read for call in task.calls))
    expected, found = workload.replay(task), workload.observed(task, "a turn that never was")
    assert expected.effects
    assert found.final_state != expected.final_state


def test_tau2_tasks_are_those_of_the_package(domain: Domain, state: WorkloadState):
    """There are as many tasks, calls and writes as the package records."""
    tasks = _workload(domain, state).tasks()
    calls = [call for task in tasks for call in task.calls]
    assert (len(tasks), len(calls), sum(not call.is_read for call in calls)) == COUNTS[domain.name]


def test_tau2_base_never_changes(domain: Domain):
    """Writes change copies, so a new view shows the original state."""
    collection, key = _any_record(domain)
    before = as_text(getattr(domain.base, collection)[key])
    view = View(domain, {}, writable=True)
    record = getattr(view, collection)[key]
    setattr(record, str(next(iter(record.model_dump()))), "changed")
    assert list(view.changes()) == [(collection, key)]
    assert as_text(getattr(domain.base, collection)[key]) == before
    assert View(domain, {}, writable=True).changes() == {}


def test_tau2_looking_is_no_change(domain: Domain):
    """A record that a write only reads is not stored as changed."""
    collection, key = _any_record(domain)
    view = View(domain, {}, writable=True)
    assert getattr(view, collection)[key] is not getattr(domain.base, collection)[key]
    assert view.changes() == {}


def test_tau2_collection_is_a_mapping(domain: Domain):
    """Deleting, adding, counting and iterating work as with a dict."""
    collection, key = _any_record(domain)
    view = View(domain, {}, writable=True)
    records, plain = getattr(view, collection), dict(getattr(domain.base, collection))
    del records[key]
    records["new"] = plain.pop(key)
    plain["new"] = records["new"]
    assert list(records) == list(plain)
    assert len(records) == len(plain)
    assert key not in records
    with pytest.raises(KeyError):
        _ = records[key]
    restored = getattr(View(domain, view.changes(), writable=False), collection)
    assert sorted(restored) == sorted(plain)


def test_tau2_records_keep_the_type_of_each_number():
    """An int stays an int even where the class says float, because hashes tell the two apart."""
    domain = load_domain("retail")
    order = next(iter(getattr(domain.base, "orders").values())).model_copy(deep=True)  # noqa: B009 - untyped
    order.exchange_price_difference = 0
    again = from_text(domain.records["orders"], as_text(order))
    assert repr(again.model_dump()) == repr(order.model_dump())


def _any_record(domain: Domain) -> tuple[str, str]:
    collection = next(iter(domain.records))
    return collection, next(iter(getattr(domain.base, collection)))


def _sample(tasks: Sequence[WorkloadTask]) -> list[WorkloadTask]:
    """Tasks of the development half that write more than once."""
    several = [task for task in tasks if sum(not call.is_read for call in task.calls) > 1]
    chosen = [task for task in several if Half.DEV.holds(task.id)][:SAMPLE]
    assert len(chosen) == SAMPLE
    return chosen
