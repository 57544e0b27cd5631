"""How a sweep's progress looks where nobody draws: in a pipe."""

from __future__ import annotations

import pytest

from harness_worker.entrypoints.cli.output import console
from harness_worker.entrypoints.view.counting import CountingProgress
from tests.unit.engine_kit import SetClock


def test_progress_in_a_pipe_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure at once, on one line and harmless; the count every few seconds with what is left, and at the end.

    The name is harmless too, and lines have any length.
    """
    monkeypatch.setenv("COLUMNS", "40")
    clock = SetClock(0.0)
    with CountingProgress(console(), clock, "sh\x1bop\n", 4, "cell") as progress:
        progress.count("a", None)
        progress.tick()
        clock.wait(6)
        progress.count("b\x1b[2J", "no\nsuch\tword [bold] :x:")
        progress.tick()
        for task in "cd":
            progress.count(task, None)
            progress.tick()
    assert capsys.readouterr().out.splitlines() == [
        "cell b·[2J: no such word [bold] :x:",
        "sh·op: 2 of 4 cells done, 1 failed, about 6.00 s left",
        "sh·op: 4 of 4 cells done, 1 failed",
    ]
