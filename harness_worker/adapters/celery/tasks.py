"""The tasks of the fleet: ``turn.advance``, ``turn.judge``, ``turn.submit``, and a ``tool.<name>`` for each tool."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from threading import Event
from typing import Any, Final

from celery import Task
from celery.exceptions import Ignore, Reject
from kombu.exceptions import OperationalError

from harness_worker.adapters.celery.requests import runner_name
from harness_worker.errors import SYSTEM_ERRORS, ConfigError, InvariantError, NewerWire, TransientError, WireError
from harness_worker.ports import RunningCall
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.judging import Judging
from harness_worker.turn.running.call_runner import CallRunner
from harness_worker.turn.running.job import Canvas, Job
from harness_worker.turn.submitting import NAMES, Submitting
from harness_worker.turn.system_errors import system_errors_are_transient
from harness_worker.wire import (
    ADVANCE_TASK,
    JUDGE_TASK,
    SUBMIT_TASK,
    TOOL_TASK_PREFIX,
    Priority,
    ToolMessage,
    tool_task,
    turn_queue,
)

log = logging.getLogger(__name__)

AWAY_S: Final = 1.0
"""How long a message is kept, in seconds, before it goes back to its queue because a service it needs is away."""


class ThreadTask(Task[..., Any]):
    """A task of a coordinator: whatever it raises, neither its thread nor its message is lost.

    Celery treats only an ``Exception`` as the failure of a task in a thread. An ``asyncio.CancelledError`` would leave
    the message without an answer, and occupy its place among those that the worker takes at once for good. So would a
    ``MemoryError``, which Celery raises again before it acknowledges.
    """

    Request = "harness_worker.adapters.celery.requests:ThreadRequest"

    throws: tuple[type[Exception], ...] = (TransientError,)
    """Logged without a traceback."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any task's
        """Run; raise an ``InvariantError`` for what is no ``Exception``, and an error of the system as transient."""
        try:
            with system_errors_are_transient():
                return self.run(*args, **kwargs)
        except Exception:
            raise
        except BaseException as error:
            raise InvariantError(f"{self.name} was left by {error!r}, which ends no thread") from error


class AdvanceTask(ThreadTask):
    """``turn.advance(turn_id)``: look at a turn once. It is idempotent, and waits for nothing but the model.

    Args:
        coordinator: Drives turns.
    """

    name = ADVANCE_TASK
    typing = False

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def run(self, turn_id: object = None, *more: object, **others: object) -> None:
        """Look at the turn; if the database does not answer or the system fails, leave it to the reconciler."""
        if not isinstance(turn_id, str) or more or others:
            log.warning("message dropped, it is not a wake-up: its only argument must be a turn's id")
            return
        try:
            with system_errors_are_transient():
                self._coordinator.advance(turn_id)
        except TransientError as error:
            log.warning("turn %s not looked at, the reconciler will see to it: %s", turn_id, error)


class JudgeTask(ThreadTask):
    """``turn.judge(turn_id, judge)``: have one judge score a turn that has ended. It is idempotent.

    Args:
        judging: Runs judges.
    """

    name = JUDGE_TASK
    typing = False

    def __init__(self, judging: Judging) -> None:
        self._judging = judging

    def run(self, *named: object, **others: object) -> None:
        """Judge; if the database does not answer or the system fails, leave it to the reconciler."""
        turn_id, judge = named if len(named) == 2 else (None, None)
        if not isinstance(turn_id, str) or not isinstance(judge, str) or others:
            log.warning("message dropped, it is not for a judge: its arguments must be a turn's id and a judge's name")
            return
        try:
            with system_errors_are_transient():
                self._judging.judge(turn_id, judge)
        except TransientError as error:
            log.warning("turn %s not judged by %s, the reconciler will see to it: %s", turn_id, judge, error)


class SubmitTask(ThreadTask):
    """``turn.submit(agent=…, input=…, …)``: store a turn for a Celery producer. The task's id becomes the turn's.

    If something is wrong with the turn, the task fails. It is idempotent, and ends as soon as the turn is stored.

    Args:
        submitting: Stores turns.
    """

    name = SUBMIT_TASK
    Request = "harness_worker.adapters.celery.requests:SubmitRequest"
    typing = False
    ignore_result = False
    """The result is stored for the producer, unless its message says to ignore it."""

    throws = (ConfigError, TransientError)
    """Logged without a traceback."""

    def __init__(self, submitting: Submitting) -> None:
        self._submitting = submitting

    def run(self, *named: object, **asked: Any) -> str:  # noqa: ANN401 - whatever a producer wrote
        """Store the turn and return its id. While the database is away, the message goes back to its queue."""
        if named:
            raise ConfigError(f"{self.name} has no positional arguments: give {', '.join(NAMES)}, by name")
        turn_id = str(self.request.id)
        try:
            with system_errors_are_transient():
                self._submitting.submit(turn_id, asked, self._priority())
        except TransientError as error:
            log.warning("turn %s not stored, its message goes back to its queue: %s", turn_id, error)
            Event().wait(AWAY_S)
            raise Reject(error, requeue=True) from None
        except ConfigError as error:
            log.warning("turn %s refused: %s", turn_id, error)
            raise
        return turn_id

    def _priority(self) -> Priority:
        delivery: Mapping[str, object] = self.request.delivery_info or {}
        is_batch = delivery.get("routing_key") == turn_queue(Priority.BATCH)
        return Priority.BATCH if is_batch else Priority.INTERACTIVE


class ToolTask(Task[..., Any]):
    """``tool.<name>``: run one call of a tool.

    Args:
        tool: The tool's name.
        runner: Runs calls.
        on_lost: Called in the parent process when the process of a call is known to be dead, with the run and whether
            the process was ended because the call's time was over; never raises.
    """

    Request = "harness_worker.adapters.celery.requests:ToolRequest"
    typing = False
    throws = (OperationalError, *SYSTEM_ERRORS)
    """Logged without a traceback. If the canvas cannot be sent on, that is all: the call has ended, and a look-in sends
    the rest."""

    def __init__(self, tool: str, runner: CallRunner, on_lost: Callable[[RunningCall, bool], None]) -> None:
        self.name = tool_task(tool)
        self._runner = runner
        self.on_lost = on_lost

    def run(self, *_: object, **kwargs: Any) -> str:  # noqa: ANN401 - the fields of a ToolMessage
        """Run the call and return its id for the canvas, or leave the canvas where it is."""
        try:
            message = ToolMessage.from_kwargs(kwargs)
        except NewerWire as error:
            # Nothing was started: the call stays as it is, and the next look-in sends it again, to any worker.
            log.warning("%s: left to a newer worker: %s", self.name, error)
            raise Ignore from None
        except WireError as error:
            log.warning("%s: dropped: %s", self.name, error)
            raise Ignore from None
        job = Job(
            turn_id=message.turn_id,
            call_id=message.call_id,
            attempt=message.attempt,
            tool=self.name.removeprefix(TOOL_TASK_PREFIX),
            is_read=message.read,
            runner=runner_name(str(self.request.hostname), os.getpid()),
        )
        if self._runner.run(job) is Canvas.STAYS:
            raise Ignore
        return message.call_id
