"""Waiting for work that may never come back."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future

import pytest

from harness_worker.errors import TransientError
from harness_worker.testing.waiting import wait_until
from harness_worker.threads import timeouts
from harness_worker.threads.timeouts import OverdueCalls, within


def test_work_that_ends_as_its_time_does_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of the wait and the look at what came of it."""
    free = threading.Event()

    class Ending(Future[str]):
        def result(self, timeout: float | None = None) -> str:
            try:
                return super().result(timeout)
            finally:
                free.set()
                super().result(30)

    def work() -> str:
        free.wait(30)
        return "done"

    monkeypatch.setattr(timeouts, "Future", Ending)
    assert within(0.01, work) == "done"


def test_result_that_nobody_waits_for_is_told() -> None:
    """What it stands for can be undone; a result that was heard is not told."""
    free, told = threading.Event(), threading.Event()
    unwanted: list[str] = []

    def work() -> str:
        free.wait(30)
        return "stored"

    def undo(result: str) -> None:
        unwanted.append(result)
        told.set()

    with pytest.raises(TimeoutError, match=r"no answer within 0.01 s"):
        within(0.01, work, unwanted=undo)
    free.set()
    assert told.wait(30)
    assert unwanted == ["stored"]
    assert within(30, lambda: "heard", unwanted=undo) == "heard"
    assert unwanted == ["stored"]


def test_work_that_never_ends_keeps_no_process_from_its_exit() -> None:
    """Python waits there for every other kind of thread."""
    assert within(30, lambda: threading.current_thread().daemon)


def test_no_more_calls_are_started_while_too_many_are_overdue(caplog: pytest.LogCaptureFixture) -> None:
    """Each holds a thread. It is logged once, other names are not affected, and calls start again once one returns."""
    caplog.set_level(logging.ERROR)
    free, begun = threading.Event(), list[int]()
    calls = OverdueCalls(most=2)

    def hang() -> bool:
        begun.append(1)
        return free.wait(30)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            calls.within(0.01, hang, name="judge slow")
    for _ in range(3):
        with pytest.raises(TransientError, match="2 earlier calls of judge slow have not returned"):
            calls.within(0.01, hang, name="judge slow")
    wait_until(lambda: len(begun) == 2, "both threads to begin")
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert calls.within(30, lambda: "well", name="judge quick") == "well"
    free.set()

    def starts_again() -> bool:
        try:
            return calls.within(30, lambda: True, name="judge slow")
        except TransientError:
            return False

    wait_until(starts_again, "an overdue call to return")
    free.clear()

    def is_refused_again() -> bool:
        with pytest.raises((TimeoutError, TransientError)) as raised:
            calls.within(0.01, hang, name="judge slow")
        return raised.type is TransientError

    wait_until(is_refused_again, "too many overdue calls")
    free.set()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"], "it is told anew"


def test_calls_in_their_time_are_not_overdue() -> None:
    """Many may run at once, and one that raises has returned."""
    free, calls = threading.Event(), OverdueCalls(most=1)
    begun = threading.Barrier(4)

    def work() -> bool:
        begun.wait(30)
        return free.wait(30)

    def fail() -> None:
        raise RuntimeError("no idea")

    callers = [threading.Thread(target=calls.within, args=(30, work), kwargs={"name": "judge"}) for _ in range(3)]
    for caller in callers:
        caller.start()
    begun.wait(30)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no idea"):
            calls.within(0.01, fail, name="judge")
    free.set()
    for caller in callers:
        caller.join()


@pytest.mark.parametrize("refusal", [RuntimeError("can't start new thread"), MemoryError()])
def test_call_that_no_thread_could_be_started_for_is_not_overdue(
    refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing that could return."""
    calls = OverdueCalls(most=1)

    def start(_: threading.Thread) -> None:
        raise refusal

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(type(refusal)):
            calls.within(0.0, lambda: None, name="judge")
    assert calls.within(30, lambda: "well", name="judge") == "well"
