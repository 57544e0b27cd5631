"""Keeps the harness's Celery apart from an application's: they share no tasks, messages or results."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from celery import Celery, _state
from celery.app import builtins

from harness_worker.celery_apps import GivenCelery


class OwnCelery(GivenCelery):
    """Has only the tasks registered with it and Celery's own, not those that an application shares with every app.

    Celery adds every ``@app.task`` and ``@shared_task`` of a process to each of the process's apps, whenever an app is
    finalized or a task is declared. A worker would serve it, and run it again if its process died.
    """

    def _task_from_fun(self, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401 - Celery's own
        if fun.__module__ == builtins.__name__:
            return super()._task_from_fun(fun, *args, **options)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        return None


class Surroundings:
    """The global state of Celery that an application's code sees, as it is without a worker, when this is made.

    A worker makes its own app the current one, so that a tool's tasks would go to the harness's broker, and forbids
    waiting for results. None of the harness's own code uses the current app or waits for a result.
    """

    def __init__(self) -> None:
        self._state: Any = _state
        self._app = self._state.get_current_app()  # Celery's fallback if the application has none

    def restore(self, **_: object) -> None:
        """Restore the state, for all threads; to be called once a worker, or a process of its pool, has started."""
        self._app.set_default()
        self._state._set_current_app(None)  # noqa: SLF001 - this thread's app; the default is for all threads
        self._state._set_task_join_will_block(False)  # noqa: SLF001 - celery.result.allow_join_result only lasts for a block


@contextmanager
def as_current(app: Celery) -> Generator[None]:
    """A context in which the app is this thread's current one, to be used where no code of an application runs.

    Celery binds the tasks of a chain that is a callback, or nested in one, to the current app instead of the one that
    sends it. The chain would go to the application's broker.
    """
    state: Any = _state
    before = state._tls.current_app  # noqa: SLF001 - as above
    state._set_current_app(app)  # noqa: SLF001 - as above
    try:
        yield
    finally:
        state._set_current_app(before)  # noqa: SLF001 - as above
