"""Tools of an MCP server in a real fleet: the server is kept for several calls, and may be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Mapping
from typing import Any

import psutil
import pytest

from harness_worker.entrypoints.stack import open_stack
from harness_worker.testing.waiting import wait_until
from tests.apps.e2e.journal import DIRECTORY_VARIABLE, notes_file, scripts_file
from tests.e2e.outsider import Json, Outsider, call
from tests.e2e.times import contents
from tests.mcp_servers import Notes
from tests.processes import runs
from tests.stacks import ROOT

pytestmark = [pytest.mark.acceptance, pytest.mark.xdist_group("e2e-mcp"), pytest.mark.timeout(240)]

APP = "tests.apps.e2e.mcp:registry"
MOST_TRIES = 5


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Outsider]:
    """A stack with one tool process, which therefore runs every call."""
    directory = tmp_path_factory.mktemp("e2e-mcp")
    scripts_file(directory).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv(DIRECTORY_VARIABLE, str(directory))
        env = {DIRECTORY_VARIABLE: str(directory)}
        with open_stack(home=directory / "home", app=APP, coordinators=2, tools=1, env=env) as stack:
            outsider = Outsider(stack, directory)
            yield outsider
            served = process_of(outsider)
            outsider.http.close()
    wait_until(lambda: not runs(served), "the server to end with its stack")


@pytest.fixture
def notes(fleet: Outsider) -> Notes:
    """The lines that the server's tools have written, if any."""
    notes = Notes(notes_file(fleet.directory))
    notes.clear()
    return notes


def side(tool: str, **arguments: object) -> tuple[str, Mapping[str, Any]]:
    """A call of a tool of the server."""
    return call(f"side__{tool}", **arguments)


def process_of(fleet: Outsider) -> int:
    """The pid of the server that runs now."""
    return json.loads(contents(fleet.run([side("process")], "done"))[0])["pid"]


def tool_process(server: int) -> int:
    """The pool process that the server belongs to; a guard process stands between the two."""
    guard = psutil.Process(server).parent()
    assert guard is not None
    return guard.ppid()


def killed(fleet: Outsider, notes: Notes, event: str, *tools: tuple[str, Any], pool: bool = False) -> Json:
    """A turn during whose first call the server is killed, or the process that called it."""
    turn_id = fleet.post(list(tools), "done")
    pid = notes.wait(event)["pid"]
    os.kill(tool_process(pid) if pool else pid, signal.SIGKILL)
    turn = fleet.end(turn_id)
    assert turn["output_text"] == "done"
    wait_until(lambda: not runs(pid), "the server to be gone")
    return turn


def test_server_is_kept_beside_other_tools(fleet: Outsider) -> None:
    """Several calls share a server; another tool's deadline in its process ends what that tool started, but not it."""
    before = process_of(fleet)
    turn = fleet.run([side("add", a=1, b=2), side("add", a=3, b=4), call("nap"), side("write", text="x")], "done")
    assert contents(turn) == ["3", "7", "timeout: nap did not finish within 0.5 s", "wrote x"]
    assert process_of(fleet) == before


def test_read_whose_server_is_killed_is_asked_again_unseen(fleet: Outsider, notes: Notes) -> None:
    """The read is repeated within the same attempt, by a new server."""
    turn = killed(fleet, notes, "lingers", side("linger", s=0.5))
    assert [(each["content"], each["attempt"]) for each in turn["calls"]] == [("lingered", 1)]


def test_write_whose_server_is_killed_is_in_doubt(fleet: Outsider, notes: Notes) -> None:
    """The write is asked for once, and no later call of the plan runs."""
    turn = killed(fleet, notes, "hangs", side("hang"), side("write", text="x"))
    doubt, other = contents(turn)
    assert doubt.startswith("outcome_unknown: side__hang started, and side did not answer: Connection closed; ")
    assert other.startswith("denied: not_run: ")
    assert (len(notes.of("hangs")), notes.of("wrote")) == (1, [])


def test_read_whose_process_is_killed_is_run_again(fleet: Outsider, notes: Notes) -> None:
    """The read runs again as a second attempt, and nothing is left of the first attempt's server."""
    turn = killed(fleet, notes, "lingers", side("linger", s=0.5), pool=True)
    assert [(each["content"], each["attempt"]) for each in turn["calls"]] == [("lingered", 2)]


def test_write_whose_process_is_killed_is_in_doubt(fleet: Outsider, notes: Notes) -> None:
    """Nothing is left of its server, and no other server is asked to do it."""
    turn = killed(fleet, notes, "hangs", side("hang"), pool=True)
    assert contents(turn)[0].startswith("outcome_unknown: ")
    assert len(notes.of("hangs")) == 1


def test_calls_past_their_time_end_and_their_server_is_replaced(fleet: Outsider, notes: Notes) -> None:
    """A read is a timeout, a write is in doubt; a server that could listen was told of the cancel."""
    turn = fleet.run([side("linger", s=100)], [side("hang")], [side("add", a=1, b=1)], "done")
    (timeout,), (doubt,), (added,) = (contents(turn, step) for step in range(3))
    assert timeout == "timeout: side__linger did not finish within 30 s"
    assert doubt.startswith("outcome_unknown: side__hang ")
    assert added == "2"
    assert notes.wait("cancelled")["pid"] == notes.wait("lingers")["pid"]
    hung = notes.wait("hangs")["pid"]
    wait_until(lambda: not runs(hung), "the server that hangs to be ended", 20)


def test_cancel_reaches_the_server(fleet: Outsider, notes: Notes) -> None:
    """The turn ends at once, the calling process lives on, and the server is told of the cancel.

    A machine that has no time for that within half a second has the worker kill the process and say so: then once more.
    """
    assert any(told_in_time(fleet, notes) for _ in range(MOST_TRIES)), "the process never stopped by itself"


def told_in_time(fleet: Outsider, notes: Notes) -> bool:
    """Whether a cancel was told to the server, by a process that lives on, before the worker would have killed that."""
    notes.clear()
    turn_id = fleet.post([side("linger", s=100)], "never said")
    caller = tool_process(notes.wait("lingers")["pid"])
    assert fleet.http.post(f"/v1/turns/{turn_id}/cancel").status_code == 202
    assert fleet.end(turn_id)["status"] == "cancelled"
    successor = tool_process(process_of(fleet))
    if f"call 0.0 of turn {turn_id} did not stop" in (fleet.directory / "home" / "logs" / "up.log").read_text():
        return False
    assert notes.wait("cancelled")
    assert successor == caller
    return True
