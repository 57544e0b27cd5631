"""The harness's Celery beside an application's: neither's tasks, messages and results become the other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, _state
from celery.app import builtins


class OwnCelery(Celery):
    """Has the tasks that are registered with it, and Celery's own; not those that an application shares with every app.

    Every ``@app.task`` and ``@shared_task`` of a process is Celery's to add to each of its apps, whenever one is
    finalized or declared. A worker would serve it, and run it again when its process died.
    """

    def _task_from_fun(self, fun: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401 - Celery's own
        if fun.__module__ == builtins.__name__:
            return super()._task_from_fun(fun, *args, **options)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        return None


class Surroundings:
    """What Celery tells the code of an application in this process, as it is when this is made: without a worker.

    A worker makes its own app the current one, so that what a tool sends would go to the harness's broker, and forbids
    to wait for results. None of the harness's own code asks for the current app or waits for a result.
    """

    def __init__(self) -> None:
        self._state: Any = _state
        self._app = self._state.get_current_app()  # Celery's fallback if the application has none

    def restore(self, **_: object) -> None:
        """Have it as it was, in all threads; to be called when a worker, or a process of its pool, has begun."""
        self._app.set_default()
        self._state._set_current_app(None)  # noqa: SLF001 - of this thread: the default is everybody's
        self._state._set_task_join_will_block(False)  # noqa: SLF001 - celery.result.allow_join_result is a block's
