"""The harness's Celery app beside those of an application."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, _state, shared_task

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.isolation import as_current
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


def test_app_is_current_for_as_long_as_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application may have made its own the current one of the thread, in a hook for one, and finds it again."""
    state: Any = _state
    theirs = Celery("theirs", set_as_current=False)
    monkeypatch.setattr(state._tls, "current_app", theirs)
    ours = make_app(Settings(), redis_url="memory://", broker_url="memory://")
    with as_current(ours):
        assert state.get_current_app() is ours
    assert state.get_current_app() is theirs
