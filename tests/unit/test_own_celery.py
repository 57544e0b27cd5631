"""The harness's Celery app beside those of an application."""

from __future__ import annotations

from celery import Celery, shared_task

from harness_worker.adapters.celery.app import make_app
from harness_worker.config import Settings


def task() -> None:
    """Do nothing."""


def test_tasks_of_an_application_are_not_served() -> None:
    """Celery gives each app the tasks of all others, before it is finalized and after; the harness's takes none."""
    app = make_app(Settings(), redis_url="memory://", broker_url="memory://")
    theirs = Celery("theirs", set_as_current=False)
    theirs.task(name="unit.before")(task)
    app.finalize()
    shared_task(name="unit.after")(task)
    assert {"unit.before", "unit.after"} <= set(theirs.tasks)
    assert [name for name in app.tasks if not name.startswith("celery.")] == []
    assert "celery.chord" in app.tasks
