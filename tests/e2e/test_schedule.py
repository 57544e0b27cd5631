"""Turns on a schedule, as the page on schedules shows them, with a real Celery beat."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from harness_worker.testing.waiting import wait_until
from tests.e2e.outsider import Json, Outsider, add_script
from tests.stacks import ROOT

PAGE: Final = (ROOT / "docs" / "how-to" / "schedule-turns.md").read_text()
(SCHEDULES,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

LATE_BEAT: Final = """
import sys
from datetime import timedelta
from celery.beat import PersistentScheduler
from schedules import app

before = PersistentScheduler(app=app, schedule_filename=sys.argv[1])
for entry in before.schedule.values():
    entry.last_run_at -= timedelta(days=8)
before.close()
app.start(["beat", "--loglevel", "INFO", "--schedule", sys.argv[1]])
"""
"""A beat that was down for eight days."""


@contextmanager
def beats(outsider: Outsider, directory: Path, number: int) -> Generator[list[Path]]:
    """That many running beats, each with a state file of its own; yields their logs."""
    env = {**os.environ, "HARNESS_REDIS_URL": outsider.broker_url, "PYTHONPATH": str(directory)}
    logs = [directory / f"beat-{each}.log" for each in range(number)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for log in logs:
            command = [sys.executable, "-c", LATE_BEAT, str(log.with_suffix(".schedule"))]
            with log.open("wb") as out:
                running.append(subprocess.Popen(command, cwd=directory, env=env, stdout=out, stderr=out))
        yield logs
    finally:
        for beat in running:
            beat.terminate()
        for beat in running:
            beat.wait(20)


def last_ticks(now: datetime) -> set[str]:
    """For each of the page's schedules, the id of the tick that was due last."""
    daily = now.replace(hour=6, minute=0)
    daily -= timedelta(days=daily > now)
    weekly = now.replace(hour=7, minute=0) - timedelta(days=now.weekday())
    weekly -= timedelta(days=7 * (weekly > now))
    return {f"tea-of-the-day-{daily:%Y%m%dT%H%MZ}", f"weekly-review-{weekly:%Y%m%dT%H%MZ}"}


@pytest.mark.acceptance
def test_missed_tick_that_two_beats_send_is_one_turn(outsider: Outsider, tmp_path: Path) -> None:
    """Each schedule's last missed tick becomes one turn, with the tick's time, found by the schedule's name."""
    script = add_script(outsider.directory, ["done"])
    here = SCHEDULES.replace('"notes"', '"worker"').replace('"metadata": {', f'"metadata": {{"script": "{script}", ')
    (tmp_path / "schedules.py").write_text(here)
    expected = last_ticks(datetime.now(UTC))
    with beats(outsider, tmp_path, 2) as logs:
        for log in logs:
            wait_until(lambda log=log: log.read_text().count("Sending due task") == 2, f"the ticks of {log.name}", 60)
    ended = [outsider.end(tick) for tick in expected]
    assert {turn["output_text"] for turn in ended} == {"done"}
    assert {
        listed["id"] for turn in ended for listed in of_schedule(outsider, turn["metadata"]["schedule"])
    } == expected
    assert not any("Message Error" in log.read_text() for log in logs)


def of_schedule(outsider: Outsider, name: str) -> list[Json]:
    """The turns of a schedule."""
    return outsider.http.get("/v1/turns", params={"metadata.schedule": name}).json()["data"]
