"""Waiting for work that may never come back."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from harness_worker.threads import waiting
from harness_worker.threads.waiting import within


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

    monkeypatch.setattr(waiting, "Future", Ending)
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
