"""Somebody uses Celery's remote control on tasks of the harness, as Flower can: turns go on, nothing is lost."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Generator
from typing import Any

import pytest
from celery import Celery

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, add_script, call
from tests.e2e.times import contents
from tests.e2e.workers import await_back
from tests.stacks import role_pid

pytestmark = pytest.mark.one_database("sqlite")

TERMINATED: list[tuple[list[tuple[str, Any]], str, int]] = [
    ([call("linger")], "attempt 2", 2),
    ([call("hold_write", who="me", s=30.0)], "outcome_unknown: hold_write started", 1),
]


@pytest.fixture
def operator(outsider: Outsider) -> Generator[Celery]:
    """Somebody who can reach the broker."""
    with Celery("operator", broker=outsider.broker_url, set_as_current=False) as app:
        yield app


def running(operator: Celery, name: str, turn_id: str) -> str:
    """The id of the turn's task of that name, as soon as one runs."""
    inspect: Any = operator.control.inspect(timeout=1.0)

    def ids() -> list[str]:
        answers: dict[str, list[Json]] = inspect.active() or {}
        return [
            task["id"] for tasks in answers.values() for task in tasks if task["name"] == name and turn_id in str(task)
        ]

    return wait_until(ids, f"a task {name} to run", 30)[0]


def terminate(operator: Celery, task_id: str) -> None:
    """Tell all workers to terminate a task."""
    control: Any = operator.control
    control.revoke(task_id, terminate=True, reply=True)


def log_of(outsider: Outsider) -> str:
    """What the stack's processes have written to their log."""
    return (outsider.directory / "home" / "logs" / "up.log").read_text()


def test_look_at_a_turn_that_is_terminated_goes_on(outsider: Outsider, operator: Celery) -> None:
    """A thread cannot be ended: the worker says so, and the turn ends as if nobody had tried."""
    word = uuid.uuid4().hex
    turn_id = outsider.hold(word)
    looking = running(operator, "turn.advance", turn_id)
    terminate(operator, looking)
    goes_on = f"turn.advance[{looking}] goes on: a thread cannot be terminated"
    wait_until(lambda: goes_on in log_of(outsider), "the worker to say so", 30)
    outsider.give(word)
    turn = outsider.end(turn_id)
    assert (turn["status"], turn["output_text"]) == ("completed", "done")
    assert "NotImplementedError" not in log_of(outsider)


def test_turn_that_is_stored_goes_on_though_its_message_is_terminated(outsider: Outsider, operator: Celery) -> None:
    """Its message has done its work by then."""
    script = add_script(outsider.directory, ["done"])
    asked: Json = {"agent": "worker", "input": "go", "metadata": {"script": script}}
    sent = operator.send_task("turn.submit", kwargs=asked, queue="turns.interactive", ignore_result=True)
    wait_until(lambda: outsider.http.get(f"/v1/turns/{sent.id}").status_code == 200, "the turn to be stored", 30)
    terminate(operator, sent.id)
    assert outsider.end(sent.id)["status"] == "completed"


@pytest.mark.parametrize(("asked", "said", "times"), TERMINATED, ids=["read", "write"])
def test_call_that_is_terminated_is_as_if_its_process_had_died(
    outsider: Outsider, operator: Celery, asked: list[tuple[str, Any]], said: str, times: int
) -> None:
    """Its turn is looked at at once: a read runs again, and of a write nobody can say whether it happened."""
    turn_id = outsider.post(asked, "done")
    outsider.await_entry(turn_id, "0.0")
    terminate(operator, running(operator, f"tool.{asked[0][0]}", turn_id))
    turn = outsider.end(turn_id)
    assert turn["output_text"] == "done"
    assert contents(turn)[0].startswith(said)
    assert len(outsider.entries(turn_id)) == times


@pytest.mark.parametrize("task", ["turn.advance", "tool.look"])
def test_rate_limit_holds_nothing_up(outsider: Outsider, operator: Celery, task: str) -> None:
    """Celery's worker would keep the messages beyond it to itself, and with all its places taken serve no turn."""
    control: Any = operator.control
    control.rate_limit(task, "1/h", reply=True)
    try:
        turns = [outsider.post([call("look", n=1), call("look", n=2)], [call("look", n=3)], "done") for _ in range(2)]
        assert [outsider.end(turn_id)["output_text"] for turn_id in turns] == ["done", "done"]
    finally:
        control.rate_limit(task, 0, reply=True)


def test_last_process_that_runs_tools_stays(outsider: Outsider, operator: Celery) -> None:
    """Without any, the worker would take calls and run none."""
    control: Any = operator.control
    answers = control.pool_shrink(50, reply=True)
    assert outsider.run([call("look", n=1)], "done")["output_text"] == "done"
    assert "one must stay" in repr(answers)


def test_coordinator_that_is_told_to_quit_at_once_leaves_its_turns_to_others(outsider: Outsider) -> None:
    """Its threads cannot be ended, which is no error: the turn goes on in the process that takes its place."""
    turn_id = outsider.post({"content": [{"type": "text", "text": "done"}], "latency_s": 5.0})
    wait_until(lambda: outsider.turn(turn_id)["status"] == "running", "the turn to run", 30)
    pid = role_pid(outsider.stack.home, "coordinator")
    os.kill(pid, signal.SIGQUIT)
    assert outsider.end(turn_id)["output_text"] == "done"
    await_back(outsider, "coordinator", pid)
    assert "NotImplementedError" not in log_of(outsider)
