"""Judges of the suite: each writes down that it was asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from harness_worker import Score, TurnResult
from tests.apps.e2e import journal


def judged_file(base: Path, turn_id: str) -> Path:
    """Which judges were asked about a turn, a line each."""
    return base / f"{turn_id}.judged"


def calls(turn: TurnResult) -> Score:
    """Half a point for each call that went well."""
    _asked(turn, "calls")
    return Score(min(1.0, sum(not call.is_error for call in turn.calls) / 2), f"{len(turn.calls)} calls")


def mortal(turn: TurnResult) -> float:
    """Judge, but take the whole worker along the first time."""
    if _asked(turn, "mortal") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.25


def _asked(turn: TurnResult, judge: str) -> int:
    """Note it; how often it was asked by now."""
    file = judged_file(journal.directory(), turn.id)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{judge}\n".encode())
    finally:
        os.close(descriptor)
    return file.read_text().splitlines().count(judge)
