"""The requests of tasks in a worker's main thread: a tool's outlives its process, whose death it can report."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded
from celery.exceptions import TaskPredicate
from celery.worker import state
from celery.worker.request import Request
from kombu.exceptions import OperationalError

from harness_worker.errors import TransientError, WireError
from harness_worker.ports import RunningCall
from harness_worker.wire import SUBMIT_TASK, TOOL_TASK_PREFIX, ToolMessage, tool_task

_WRAPPED: Final = "ExceptionWithTraceback()"

log = logging.getLogger(__name__)


class ToolRequest(Request):
    """Tells its task when a call's process is known to be dead."""

    def on_failure(self, exc_info: ExceptionInfo, send_failed_event: bool = True, return_ok: bool = False) -> Any:  # noqa: ANN401 - Celery's own signature
        """Called in the parent if the task failed, or its process was lost or is to be ended at its hard limit."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)  # billiard wraps it to carry its traceback
        overran = isinstance(error, TimeLimitExceeded)
        if overran:
            self._end_process()
        if not isinstance(error, TaskPredicate | OperationalError):  # only the canvas was not sent on: it lives
            self._report_lost(overran=overran)
        if isinstance(error, MemoryError):  # Celery would raise it here, in the parent, and end all other calls
            exc_info.exception = TransientError(f"the process of {self.name} was short of memory: {error!r}")
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002, ANN401 - Celery's own signature
        """Name the exception of a failure in the parent; Celery names the wrapper that billiard puts around it."""
        if fields.get("exception") == _WRAPPED:
            fields["exception"] = str(fields["traceback"]).rstrip().rpartition("\n")[2]
        super().send_event(type, **fields)

    def _end_process(self) -> None:
        """Kill the process and all that it started; the pool would do so only after others may hold the call's lock."""
        if self.worker_pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(self.worker_pid), signal.SIGKILL)

    def _report_lost(self, *, overran: bool) -> None:
        run: RunningCall | None = None
        task: Any = self.task  # a ToolTask
        try:
            if (run := _running_call(self)) is not None:
                task.on_lost(run, overran)
        except Exception:  # whatever it is, Celery must still learn of the failure, to free the slot
            with suppress(Exception):  # memory may still be short
                log.exception("death of the process of %s not reported", run or self)


class ThreadRequest(Request):
    """The request of a coordinator's task: it runs in a thread, which nobody can end, so it goes on and is answered."""

    def terminate(self, pool: Any, signal: Any = None) -> None:  # noqa: ANN401, ARG002 - Celery's own signature
        """Refuse Celery's ``revoke(…, terminate=True)``, over which Celery's own method would fail."""
        log.warning("%s[%s] goes on: a thread cannot be terminated; cancel its turn instead", self.name, self.id)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:  # noqa: ANN401 - Celery's own signature
        """Leave the task to itself while the worker ends at once; its message is delivered again."""


class SubmitRequest(ThreadRequest):
    """A request to submit a turn. Only its id is shown, because the producer's message may contain a user's words."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - Celery's own signature
        super().__init__(*args, **options)
        self.name = SUBMIT_TASK  # pyright: ignore[reportAttributeAccessIssue] - its types have it wrong
        self.request_dict["shadow"] = None  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
        self._argsrepr = "()"
        self._kwargsrepr = repr({"turn": self.id})

    def info(self, safe: bool = False) -> Any:  # noqa: ANN401, ARG002 - Celery's own signature
        """What `inspect` and Flower show of the request."""
        return super().info(safe=True)


def runner_name(hostname: str, pid: int) -> str:
    """The name of a pool process for the gate, the journal and its parent."""
    return f"{hostname}/{pid}"


def pid_of(run: RunningCall) -> int:
    """The pool process that runs a call; see :func:`runner_name`."""
    return int(run.runner.rpartition("/")[2])


def active_calls(*, reads: bool) -> list[RunningCall]:
    """The calls that this worker's children are running: reads, or all others. Callable from any thread."""
    mine = (request for request in _active() if bool(dict(request.kwargs).get("read")) is reads)
    return [run for run in map(_running_call, mine) if run is not None]


def active_calls_of(tools: Collection[str]) -> list[RunningCall]:
    """The calls of these tools that this worker's children are running. Callable from any thread."""
    names = {tool_task(tool) for tool in tools}
    return [run for request in _active() if request.name in names and (run := _running_call(request)) is not None]


def active_calls_of_turn(turn_id: str) -> list[RunningCall]:
    """The calls of this turn that this worker's children are running. Callable from any thread."""
    return [run for run in map(_running_call, _active()) if run is not None and run.turn_id == turn_id]


def _running_call(request: Request) -> RunningCall | None:
    """The call and attempt that a request runs, and where; ``None`` if it is not a tool's or has not started."""
    if not str(request.name).startswith(TOOL_TASK_PREFIX) or request.worker_pid is None:
        return None
    try:
        message = ToolMessage.from_kwargs(request.kwargs)
    except WireError:
        return None
    runner = runner_name(str(request.hostname), int(request.worker_pid))
    return RunningCall(turn_id=message.turn_id, call_id=message.call_id, attempt=message.attempt, runner=runner)


def _active() -> tuple[Request, ...]:
    while True:
        try:
            return tuple(state.active_requests)
        except RuntimeError:  # the main thread has started or ended a request meanwhile
            continue
