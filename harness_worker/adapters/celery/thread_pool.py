"""A coordinator's pool: Celery's threads, in which every message gets an answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult, TaskPool
from celery.exceptions import Ignore, Reject

from harness_worker.adapters.celery.isolation import as_current
from harness_worker.adapters.celery.results import PASSING
from harness_worker.adapters.celery.tasks import AWAY_S
from harness_worker.wire import SUBMIT_TASK

# Celery's pools have no types.
# pyright: reportAttributeAccessIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

log = logging.getLogger(__name__)


class AnsweringThreads(TaskPool):
    """Celery's pool of threads, in which an error around a task also leads to an answer to its message.

    In Celery's own, an error from storing a result or sending a callback is raised where nobody sees it: the message
    stays with the worker, and its place among those under way is lost for good.
    """

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        error_callback: Callable[[ExceptionInfo], object] | None = None,
        **_: Any,  # noqa: ANN401 - time limits, which threads cannot have
    ) -> ApplyResult | None:
        """Run the task in a thread; if the system refuses another one, in one of those that there are."""

        def apply() -> None:
            try:
                with self._surroundings(args or ()):
                    apply_target(target, args or (), kwargs, callback, accept_callback)
            except BaseException as error:  # the boundary to Celery, which has not answered
                if error_callback is None:
                    raise
                _answer(error_callback, error)

        try:
            return ApplyResult(self.executor.submit(apply))
        except RuntimeError as refused:
            if self.executor._shutdown or not self.executor._threads:  # noqa: SLF001 - then nobody will run the task
                raise
            log.warning("a task waits for a free thread, as the system refuses another one: %s", refused)
            return None

    def _surroundings(self, args: tuple[Any, ...]) -> AbstractContextManager[None]:
        """Make our app current for a producer's task, which may have callbacks; others run an application's code."""
        return as_current(self.app) if args[:1] == (SUBMIT_TASK,) else nullcontext()


def _answer(answer: Callable[[ExceptionInfo], object], error: BaseException) -> None:
    """Have the message delivered again after a passing error, which every task here allows; else drop it."""
    cause = error.reason if isinstance(error, Reject) else error
    passes = isinstance(cause, PASSING)
    what = "comes again" if passes else "is dropped"
    log.warning("a message %s, because Celery could not end its task: %s", what, type(cause).__name__)
    if passes:
        Event().wait(AWAY_S)
    try:
        raise Reject(cause, requeue=True) if passes else Ignore
    except (Reject, Ignore):
        answer(ExceptionInfo())
