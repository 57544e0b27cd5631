"""The harness's Celery app beside those of an application."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType
from typing import Any

import pytest
from celery import Celery, _state, shared_task
from kombu.exceptions import OperationalError

from api_gateway.publisher import Publisher
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


def test_variables_of_an_application_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application's own app follows them; the harness's has the URLs and settings that it was given."""
    module = ModuleType("their_settings")
    module.__dict__["worker_prefetch_multiplier"] = 50
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("CELERY_CONFIG_MODULE", module.__name__)
    monkeypatch.setenv("CELERY_LOADER", "their_loader")
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, "amqp://theirs")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "rpc://")
    conf: Any = make_app(Settings(), redis_url="redis://ours").conf
    assert {conf.broker_url, conf.broker_read_url, conf.broker_write_url} == {"redis://ours"}
    assert conf.result_backend.endswith("ChordResults+redis://ours")
    assert conf.worker_prefetch_multiplier == 1
    assert Celery("theirs", loader="app", set_as_current=False).conf.broker_url == "amqp://theirs"


def test_gateway_sends_to_the_broker_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of an application's Celery does not lead its wake-ups elsewhere."""
    monkeypatch.setenv("CELERY_BROKER_URL", "memory://")
    publisher = Publisher("redis://127.0.0.1:1", timeout_s=5.0)
    with pytest.raises(OperationalError):
        asyncio.run(publisher.check())
    publisher.close()


def test_app_is_current_for_as_long_as_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application may have made its own the current one of the thread, in a hook for one, and finds it again."""
    state: Any = _state
    theirs = Celery("theirs", set_as_current=False)
    monkeypatch.setattr(state._tls, "current_app", theirs)
    ours = make_app(Settings(), redis_url="memory://", broker_url="memory://")
    with as_current(ours):
        assert state.get_current_app() is ours
    assert state.get_current_app() is theirs
