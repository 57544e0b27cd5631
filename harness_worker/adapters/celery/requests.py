"""A tool task's request in the worker's parent process: it outlives the child and can say that it died."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from billiard.einfo import ExceptionInfo
from celery.exceptions import TaskPredicate
from celery.worker import state
from celery.worker.request import Request

from harness_worker.errors import WireError
from harness_worker.ports import RunningCall
from harness_worker.wire import TOOL_TASK_PREFIX, ToolMessage

log = logging.getLogger(__name__)


@runtime_checkable
class HearsOfLoss(Protocol):
    """A task that is told when the process of one of its calls is known to be dead."""

    def lost(self, run: RunningCall) -> None:
        """The process that ran ``run`` is gone. Called in the parent process; never raises."""
        ...


class ToolRequest(Request):
    """Tells its task when a call's process is known to be dead."""

    def on_failure(self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False) -> Any:  # noqa: ANN401 - Celery's own signature
        """Called in the parent when the task failed or its process was lost."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)  # billiard wraps it to carry its traceback
        if not isinstance(error, TaskPredicate):
            self._say_lost()
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Called in the parent when a time limit was reached; at the hard one the process is killed."""
        super().on_timeout(soft, timeout)
        if not soft:
            self._say_lost()

    def _say_lost(self) -> None:
        run = running_call(self)
        if run is not None and isinstance(self.task, HearsOfLoss):
            self.task.lost(run)


def running_call(request: Request) -> RunningCall | None:
    """The (call, attempt) a request runs and where; ``None`` if it is no tool's, or not started yet."""
    if not str(request.name).startswith(TOOL_TASK_PREFIX) or request.worker_pid is None:
        return None
    try:
        message = ToolMessage.from_kwargs(request.kwargs)
    except WireError:
        return None
    runner = f"{request.hostname}/{request.worker_pid}"
    return RunningCall(turn_id=message.turn_id, call_id=message.call_id, attempt=message.attempt, runner=runner)


def active_calls(*, reads: bool) -> list[RunningCall]:
    """The calls that this worker's children run now: reads, or all others."""
    requests: Iterable[Request] = tuple(state.active_requests)
    mine = (request for request in requests if bool(dict(request.kwargs).get("read")) is reads)
    return [run for run in map(running_call, mine) if run is not None]
