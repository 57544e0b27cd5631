"""The example of the page on schedules: which tick is which turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import pytest
from celery.beat import ScheduleEntry
from celery.schedules import crontab

from harness_worker.wire import TURN_ID
from tests.stacks import ROOT

PAGE: Final = (ROOT / "docs" / "how-to" / "schedule-turns.md").read_text()
(CODE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NOW: Final = datetime(2026, 3, 31, 5, 30, 12, tzinfo=UTC)
"""Two days after Berlin's clocks went forward."""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example defines."""
    monkeypatch.setenv("HARNESS_REDIS_URL", "redis://127.0.0.1:1/0")
    names: dict[str, Any] = {"__name__": "schedules"}
    alone = CODE.replace('Celery("schedules"', 'Celery("schedules", set_as_current=False')
    exec(compile(alone, "schedules.py", "exec"), names)  # noqa: S102 - our own page
    return names


def sent(page: dict[str, Any], schedule: crontab, last_run_at: datetime, zone: str = "UTC") -> str:
    """The id of the task that beat sends now."""
    app, timed = page["app"], cast("Any", schedule)
    app.conf.timezone = zone
    timed.nowfun = lambda: NOW.astimezone(ZoneInfo(zone))
    ids: list[str] = []

    def note(*_: object, task_id: str, **_options: object) -> None:
        ids.append(task_id)

    scheduler = page["TurnScheduler"](app, lazy=True)
    scheduler.sync = lambda: None
    scheduler.send_task = note
    entry: Any = ScheduleEntry("daily", "turn.submit", last_run_at, schedule=timed, app=app)
    scheduler.apply_async(entry, advance=False)
    (task_id,) = ids
    assert TURN_ID.fullmatch(task_id)
    return task_id


@pytest.mark.parametrize("ago", [timedelta(hours=1), timedelta(days=1), timedelta(days=40)])
@pytest.mark.parametrize(
    ("schedule", "zone", "tick"),
    [
        (lambda: crontab(hour=5, minute=0), "UTC", "daily-20260331T0500Z"),
        (lambda: crontab(hour=7, minute=0), "Europe/Berlin", "daily-20260331T0500Z"),
        (lambda: crontab(minute="*/15"), "UTC", "daily-20260331T0530Z"),
    ],
)
def test_tick_is_named_after_the_time_it_was_due_last(
    page: dict[str, Any], schedule: Callable[[], crontab], zone: str, tick: str, ago: timedelta
) -> None:
    """However long ago its beat sent the one before: so two beats, or one that was down, name it alike."""
    assert sent(page, schedule(), NOW - ago, zone) == tick


def test_schedules_of_the_page_are_told_apart(page: dict[str, Any]) -> None:
    """Each turn says which one it is of; names leave room for the time."""
    for name, entry in page["app"].conf.beat_schedule.items():
        assert entry["kwargs"]["metadata"] == {"schedule": name}
        assert len(name) <= 49
        assert entry["task"] == "turn.submit"
