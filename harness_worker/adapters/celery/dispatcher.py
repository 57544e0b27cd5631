"""Sending work: chords for parallel reads, chains for sequential calls, and wake-ups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from celery import Celery, chain, chord
from celery.canvas import Signature

from harness_worker.adapters.celery.broker import broker_errors_are_transient
from harness_worker.broadcasts import broadcast_stop
from harness_worker.core.records import Call, Turn
from harness_worker.core.timing import Timing
from harness_worker.errors import TransientError
from harness_worker.wire import (
    ADVANCE_TASK,
    JUDGE_TASK,
    Priority,
    ToolMessage,
    call_priority,
    message_priority,
    tool_task,
    turn_queue,
)

log = logging.getLogger(__name__)


class CeleryDispatcher:
    """Implements ``ports.Dispatcher``. Work that cannot be sent is logged and left to the reconciler.

    Args:
        app: The application to send with.
        timing: The protocol's times, for the hard limit.
        queues: The present queue of each tool, by its name; calls of other tools go to the queue in their plan.
    """

    def __init__(self, app: Celery, *, timing: Timing, queues: Mapping[str, str] = MappingProxyType({})) -> None:
        self._app = app
        self._timing = timing
        self._queues = queues

    def advance(self, turn_id: str, priority: str, *, begins: bool = False) -> bool:
        """See ``ports.Dispatcher.advance``."""
        when = message_priority(priority, begins=begins, broker_url=self._app.conf.broker_url)
        return self._send(turn_id, lambda: self._advance(turn_id, priority).apply_async(priority=when))

    def chord(self, turn: Turn, calls: Sequence[Call]) -> None:
        """See ``ports.Dispatcher.chord``."""
        body = self._advance(turn.id, turn.priority).on_error(self._advance(turn.id, turn.priority))
        header = [self._tool(turn, call) for call in calls]
        self._send(turn.id, lambda: chord(header, app=self._app)(body))

    def chain(self, turn: Turn, calls: Sequence[Call]) -> None:
        """See ``ports.Dispatcher.chain``."""
        links = [self._tool(turn, call) for call in calls]
        last = self._advance(turn.id, turn.priority)
        self._send(turn.id, lambda: chain(*links, last, app=self._app).apply_async())

    def judge(self, turn_id: str, judge: str) -> None:
        """See ``ports.Dispatcher.judge``."""
        self._send(turn_id, self._turn_task(JUDGE_TASK, (turn_id, judge), Priority.BATCH).apply_async)

    def stop(self, turn_id: str) -> None:
        """See ``ports.Dispatcher.stop``."""
        self._send(turn_id, partial(broadcast_stop, self._app, turn_id))

    def _send(self, turn_id: str, publish: Callable[[], object]) -> bool:
        try:
            with broker_errors_are_transient():
                publish()
        except TransientError as error:
            log.warning("work for turn %s not sent, the reconciler will send it: %s", turn_id, error)
            return False
        return True

    def _advance(self, turn_id: str, priority: str) -> Signature[Any]:
        return self._turn_task(ADVANCE_TASK, (turn_id,), priority)

    def _turn_task(self, name: str, args: tuple[str, ...], priority: str) -> Signature[Any]:
        queue = turn_queue(priority)
        return self._app.signature(name, args=args, immutable=True, queue=queue, argsrepr=repr(args), kwargsrepr="{}")

    def _tool(self, turn: Turn, call: Call) -> Signature[Any]:
        message = ToolMessage(
            turn_id=turn.id, call_id=call.call_id, attempt=call.attempt, read=call.is_read, tenant=turn.tenant
        )
        seen = {"turn": turn.id, "tenant": turn.tenant, "call": call.call_id, "attempt": call.attempt}
        return self._app.signature(
            tool_task(call.tool),
            kwargs=message.to_kwargs(),
            immutable=True,
            queue=self._queues.get(call.tool, call.queue),
            priority=call_priority(turn.priority, broker_url=self._app.conf.broker_url),
            soft_time_limit=call.timeout_s + self._timing.hard_s / 2,
            time_limit=call.timeout_s + self._timing.hard_s,
            argsrepr="()",
            kwargsrepr=repr(seen),
        )
