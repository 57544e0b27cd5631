"""A cancel, whatever the turn is doing: it is answered, everything stops, and nothing happens afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from time import monotonic

import psutil
import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import FINAL, Json, Outsider, Step, call
from tests.e2e.times import contents
from tests.processes import runs

COORDINATORS = 8
PROCESSES = 4
LONG_S = 30

THINKS_S = 50
"""Longer than a test needs, on a slow machine too, to make all that waits for models."""

TARGET_S = 1.0
"""What is promised on a system that is not overloaded; what is asserted is that nothing ended by itself."""


def thinks() -> Json:
    """A script line of a model that answers slowly."""
    return {"content": [{"type": "text", "text": "never said"}], "latency_s": THINKS_S}


class Canceller:
    """Cancels turns and measures how long that takes.

    Args:
        outsider: Sends the cancels.
        database: Shown with the figures.
        case: Shown with the figures.
    """

    def __init__(self, outsider: Outsider, database: str, case: str) -> None:
        self.outsider = outsider
        self._label = f"cancel on {database}, {case}"

    def cancel(self, turn_id: str) -> Json:
        """Cancel a turn and return it as it ended."""
        began = monotonic()
        answer = self.outsider.http.post(f"/v1/turns/{turn_id}/cancel")
        answered_s = monotonic() - began
        assert answer.status_code == 202, answer.text
        wait_until(lambda: self.outsider.turn(turn_id)["status"] in FINAL, "the turn to end", LONG_S)
        self._tell("turn ended", monotonic() - began)
        turn = self.outsider.end(turn_id)
        assert (turn["status"], turn["stop_reason"], turn["error"]) == ("cancelled", "cancelled", None)
        self._tell("answered", answered_s)
        return turn

    def stops(self, what: str, has_stopped: Callable[[], bool], since: float) -> None:
        """Wait until something has stopped; ``since`` is when the cancel was sent (``time.monotonic``)."""
        wait_until(has_stopped, what, LONG_S)
        self._tell(what, monotonic() - since)

    def _tell(self, what: str, took_s: float) -> None:
        slow = "" if took_s <= TARGET_S else f"  (over {TARGET_S:g} s: is the machine busy?)"
        print(f"{self._label}: {what} after {took_s:.2f} s{slow}")  # noqa: T201 - figures for whoever runs with -s

    def left(self, turn_id: str) -> list[Json]:
        """Those bodies of the turn's tools that have ended, none of them by itself."""
        journal = self.outsider.journal(turn_id)
        left = [line for line in journal if line["event"] == "left"]
        entered = {line["call"]: line["at"] for line in journal if line["event"] == "entered"}
        assert all(line["at"] - entered[line["call"]] < LONG_S for line in left), journal
        return left


@pytest.fixture
def canceller(outsider: Outsider, database: str, request: pytest.FixtureRequest) -> Canceller:
    """Cancels turns for one test."""
    return Canceller(outsider, database, request.function.__name__.removeprefix("test_cancel_"))


def _running(outsider: Outsider, *steps: Step, calls: int = 1) -> str:
    """A turn whose first calls are running."""
    turn_id = outsider.post(*steps)
    for position in range(calls):
        outsider.await_entry(turn_id, f"0.{position}")
    return turn_id


def _await_model(outsider: Outsider, turn_id: str) -> None:
    wait_until(lambda: outsider.turn(turn_id)["status"] == "running", f"turn {turn_id} to run", LONG_S)


def _has_event(outsider: Outsider, turn_id: str, kind: str) -> bool:
    return any(event["type"] == kind for event in outsider.events(turn_id))


def test_cancel_while_waiting_for_the_model(canceller: Canceller, outsider: Outsider) -> None:
    """The model call is given up, and its answer, which would have come later, appears nowhere."""
    turn_id = outsider.post(thinks())
    _await_model(outsider, turn_id)
    turn = canceller.cancel(turn_id)
    assert turn["output_text"] == ""
    assert turn["usage"]["steps"] == 0


def test_cancel_keeps_what_was_done(canceller: Canceller, outsider: Outsider) -> None:
    """Earlier steps of a cancelled turn stay as they ended."""
    turn_id = outsider.post([call("look", n=1)], thinks())
    wait_until(lambda: _has_event(outsider, turn_id, "step.completed"), "the first step to end", LONG_S)
    turn = canceller.cancel(turn_id)
    assert contents(turn) == ['{"n":1}']


def test_cancel_while_waiting_in_the_queue(canceller: Canceller, outsider: Outsider) -> None:
    """A turn that waits for a coordinator ends too, although all coordinator threads wait for slow models."""
    busy = [outsider.post(thinks()) for _ in range(COORDINATORS)]
    for turn_id in busy:
        _await_model(outsider, turn_id)
    waiting = outsider.post("never said")
    turn = canceller.cancel(waiting)
    assert (turn["usage"]["steps"], turn["output_text"], turn["started_at"]) == (0, "", None)
    assert [event["type"] for event in outsider.events(waiting)] == ["turn.queued", "turn.cancelled"]
    assert {outsider.turn(turn_id)["status"] for turn_id in busy} == {"running"}
    for turn_id in busy:
        canceller.cancel(turn_id)


def test_cancel_while_a_read_runs(canceller: Canceller, outsider: Outsider) -> None:
    """The read's body is stopped at once, its result says that it was cancelled, and its process lives on."""
    turn_id = _running(outsider, [call("hold", who="a", s=LONG_S)], "never said")
    (entry,) = outsider.entries(turn_id)
    began = monotonic()
    turn = canceller.cancel(turn_id)
    canceller.stops("body left", lambda: len(canceller.left(turn_id)) == 1, began)
    (read,) = turn["calls"]
    assert (read["outcome"], read["content"]) == ("ToolFailure", "cancelled")
    (told,) = [event for event in outsider.events(turn_id) if event["type"] == "tool.completed"]
    assert 0 < told["data"]["elapsed_ms"] < LONG_S * 1_000
    assert psutil.pid_exists(entry["pid"])
    _check_nothing_late(outsider, turn)


def test_cancel_while_a_write_runs(canceller: Canceller, outsider: Outsider) -> None:
    """The running write is in doubt, and no later call of the plan runs, reads included."""
    asked = [call("hold_write", who="a", s=LONG_S), call("look", n=1), call("put", n=2)]
    turn_id = _running(outsider, asked, "never said")
    began = monotonic()
    turn = canceller.cancel(turn_id)
    canceller.stops("body left", lambda: len(canceller.left(turn_id)) == 1, began)
    first, *rest = turn["calls"]
    assert first["outcome"] == "ToolFailure"
    assert first["content"].startswith("outcome_unknown: ")
    assert [each["content"].partition(": ")[2].partition(":")[0] for each in rest] == ["not_run", "not_run"]
    assert len(outsider.entries(turn_id)) == 1
    _check_nothing_late(outsider, turn)


def test_cancel_of_a_deaf_tool_ends_its_process(canceller: Canceller, outsider: Outsider) -> None:
    """A body that ignores the stop signal is ended with its process and everything that it started."""
    turn_id = _running(outsider, [call("deaf")], "never said")
    (entry,) = outsider.entries(turn_id)
    began = monotonic()
    turn = canceller.cancel(turn_id)
    for pid in (entry["pid"], entry["child"]):
        canceller.stops(f"process {pid} ended", lambda pid=pid: not runs(pid), began)
    assert turn["calls"][0]["content"] == "cancelled"
    assert outsider.run([call("meet", who=str(n), parties=PROCESSES) for n in range(PROCESSES)], "done")["output_text"]
    _check_nothing_late(outsider, turn)


def test_cancel_while_tools_wait_for_a_process(canceller: Canceller, outsider: Outsider) -> None:
    """Calls that wait for a pool process never start, and calls of other turns that run meanwhile are not harmed."""
    full = [call("hold", who=str(n), s=LONG_S) for n in range(PROCESSES)]
    running = _running(outsider, full, "never said", calls=PROCESSES)
    queued = outsider.post([call("look", n=1), call("look", n=2)], "never said")
    wait_until(lambda: outsider.turn(queued)["calls"], "the calls to be planned", LONG_S)
    turn = canceller.cancel(queued)
    assert [each["outcome"] for each in turn["calls"]] != ["ToolExecutionResult"] * 2
    assert canceller.left(running) == []
    began = monotonic()
    canceller.cancel(running)
    canceller.stops("all bodies left", lambda: len(canceller.left(running)) == PROCESSES, began)
    assert outsider.run([call("look", n=3)], "done")["output_text"] == "done"  # behind the queued ones
    assert outsider.entries(queued) == []
    _check_nothing_late(outsider, turn)


def test_cancel_does_not_hurt_the_neighbour(canceller: Canceller, outsider: Outsider) -> None:
    """Tools of other turns that run at the same time give their results."""
    neighbour = _running(outsider, [call("hold", who="n", s=2)], "done")
    canceller.cancel(_running(outsider, [call("hold", who="a", s=LONG_S)], "never said"))
    assert contents(outsider.end(neighbour)) == ["held n"]


def test_cancel_signal_that_lands_on_another_call_is_ignored(outsider: Outsider) -> None:
    """If the process already runs another turn's call when the signal arrives, that call continues undisturbed."""
    turn_id = _running(outsider, [call("hold", who="a", s=1)], [call("hold_write", who="b", s=1)], "done")
    for call_id in ("0.0", "1.0"):
        entry = outsider.await_entry(turn_id, call_id)
        os.kill(entry["pid"], signal.SIGUSR1)
    turn = outsider.end(turn_id)
    assert [each["content"] for each in turn["calls"]] == ["held a", "held b"]
    assert [each["attempt"] for each in turn["calls"]] == [1, 1]


def test_cancel_twice_is_once(canceller: Canceller, outsider: Outsider) -> None:
    """A second cancel, of a turn that has ended, is answered 200 with the turn unchanged."""
    turn_id = outsider.post(thinks())
    _await_model(outsider, turn_id)
    canceller.cancel(turn_id)
    before = outsider.http.get(f"/v1/turns/{turn_id}").json()
    again = outsider.http.post(f"/v1/turns/{turn_id}/cancel")
    assert (again.status_code, again.json()) == (200, before)


def _check_nothing_late(outsider: Outsider, turn: Json) -> None:
    """Once its tools have stopped, the turn still says what it said at its end."""
    events = outsider.events(turn["id"])
    assert events[-1]["type"] == "turn.cancelled"
    assert outsider.turn(turn["id"]) == turn
    outsider.run([call("look", n=1)], "done")  # whoever had something to hand in has had the time
    assert outsider.events(turn["id"]) == events
    assert outsider.turn(turn["id"]) == turn
