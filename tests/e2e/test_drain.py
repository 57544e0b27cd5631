"""Stopping a whole stack while turns run, and starting it again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, scripts_file
from tests.e2e.outsider import Outsider, call
from tests.e2e.times import contents
from tests.stacks import Up, harness_up, none_runs

APP = "tests.apps.e2e.app:registry"
GRACE_S = 12.0
SIZES = ("--app", APP, "--coordinators", "2", "--tools", "2")


def stop(up: Up) -> int:
    """Stop a stack as a service manager does."""
    children = up.children()
    up.process.send_signal(signal.SIGTERM)
    code = up.process.wait(GRACE_S + 5)
    assert none_runs(children), up.log.read_text()
    return code


@pytest.mark.acceptance
def test_stopped_stack_goes_on_with_the_next_up(new_database: Callable[[], dict[str, str]], tmp_path: Path) -> None:
    """Work that ends within the grace time completes, other work is cut, and the next ``up`` ends every turn.

    Neither ``up`` leaves a process behind, and only the read that was cut runs twice.
    """
    scripts_file(tmp_path).touch()
    env = {**new_database(), DIRECTORY_VARIABLE: str(tmp_path), "HARNESS_GRACE_S": str(GRACE_S)}
    home = tmp_path / "home"
    with harness_up(home, *SIZES, env=env) as up:
        before = Outsider(up.info(), tmp_path)
        written = before.post([call("put", n=1, s=3), call("put", n=2)], "done")
        cut = before.post([call("linger")], "done")
        thinking = before.post({"content": [{"type": "text", "text": "done"}], "latency_s": 9})
        for turn_id in (written, cut):
            before.await_entry(turn_id, "0.0")
        wait_until(lambda: before.turn(thinking)["status"] == "running", "the model to be asked", 10)
        assert stop(up) == 0, up.log.read_text()
        assert len(before.entries(written)) in (1, 2)
        before.http.close()
    with harness_up(home, *SIZES, env=env) as up:
        after = Outsider(up.info(), tmp_path)
        turns = [after.end(turn_id) for turn_id in (written, cut, thinking)]
        after.http.close()
        assert stop(up) == 0, up.log.read_text()
    assert "Traceback" not in up.log.read_text()
    assert [contents(turn) for turn in turns] == [["put 1", "put 2"], ["attempt 2"], []]
    assert {turn["output_text"] for turn in turns} == {"done"}
