"""Several workers of a role share the work, and stopping any of them loses nothing."""

from __future__ import annotations

import json
from collections.abc import Generator
from socket import gethostname

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, Step, call
from tests.e2e.times import contents
from tests.e2e.workers import Worker, await_back, stop, worker
from tests.stacks import run_harness

STEPS: tuple[Step, ...] = (
    [call("look", n=n, s=0.1) for n in range(3)],
    [call("put", n=1, s=0.05), call("put", n=2, s=0.05), call("look", n=3)],
    "done",
)


@pytest.fixture
def second_group(outsider: Outsider) -> Generator[tuple[Worker, Worker]]:
    """A coordinator and a tool worker beside the stack's own."""
    with (
        worker(outsider, "coordinator-2", "coordinator", "--concurrency", "4") as coordinator,
        worker(outsider, "tools-2", "tools", "--concurrency", "3") as tools,
    ):
        coordinator.await_ready()
        tools.await_ready()
        yield coordinator, tools


def hosts(turns: list[Json]) -> set[str]:
    """The tool workers that ran the calls of these turns."""
    return {each["worker"].rpartition("/")[0] for turn in turns for each in turn["calls"]}


def lost_nothing(turns: list[Json]) -> bool:
    """Whether every call of every turn has its result."""
    return all(each["outcome"] == "ToolExecutionResult" for turn in turns for each in turn["calls"])


@pytest.mark.one_database("postgres")
def test_groups_share_the_work_and_stop_without_loss(outsider: Outsider, second_group: tuple[Worker, Worker]) -> None:
    """Two groups of workers share turns; while turns run, stopping one and then draining the other loses nothing."""
    coordinator, tools = second_group
    done: list[Json] = []

    def have_shared() -> bool:
        done.append(outsider.run(*STEPS))
        return len(hosts(done)) >= 2

    wait_until(have_shared, "both to have worked", 60)
    ids = [outsider.post(*STEPS) for _ in range(12)]
    outsider.await_entry(ids[2], "0.0")
    stopped = {role: stop(outsider, role) for role in ("tools", "coordinator")}
    turns = [*done, *(outsider.end(turn_id) for turn_id in ids)]
    assert lost_nothing(turns)
    for role, pid in stopped.items():
        await_back(outsider, role, pid)
    ids = [outsider.post(*STEPS) for _ in range(12)]
    outsider.await_entry(ids[2], "0.0")
    names = [f"tools-2@{gethostname()}", f"coordinator-2@{gethostname()}"]
    drained = run_harness("drain", *names, "--home", str(outsider.stack.home), "--json")
    assert json.loads(drained.stdout) == {"gone": names, "left": []}, drained.stderr
    assert [each.process.wait(60) for each in (tools, coordinator)] == [0, 0]
    turns = [outsider.end(turn_id) for turn_id in ids]
    assert lost_nothing(turns)
    assert "Task turn.advance" in coordinator.log.read_text()
    warning = "waits 17 s, less than the timeout_s of hold_write"
    assert (warning in tools.log.read_text(), warning in coordinator.log.read_text()) == (True, False)


def test_stack_serves_every_queue_of_its_tools(outsider: Outsider) -> None:
    """A tool that names a queue of its own runs, although nobody named that queue when starting the stack."""
    turn = outsider.run([call("gpu_look", n=1), call("look", n=2)], "done")
    assert contents(turn) == ["gpu 1", '{"n":2}']


def test_worker_of_one_queue_serves_that_one_only(outsider: Outsider) -> None:
    """A worker started with ``--queues`` runs calls of those queues alone."""
    with worker(outsider, "gpu", "tools", "--concurrency", "1", "--queues", "gpu") as narrow:
        narrow.await_ready()
        second = "tools-2@"  # the first of this host is the stack's own

        def served() -> set[str]:
            calls = [call("gpu_look", n=n) for n in range(6)] + [call("look", n=n) for n in range(6)]
            turn = outsider.run(calls, "done")
            return {each["tool"] for each in turn["calls"] if each["worker"].startswith(second)}

        assert wait_until(served, "the worker to get some work", 60) == {"gpu_look"}
