"""The remote-control commands that stop what a worker does for a turn, or the worker itself."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery.worker.control import control_command

from harness_worker.adapters.celery.bootsteps import Drain
from harness_worker.adapters.celery.requests import active_calls_of_turn, pid_of
from harness_worker.ports import RunningCall
from harness_worker.wire import DRAIN_COMMAND, STOP_COMMAND

log = logging.getLogger(__name__)

SECOND_KNOCK_S = 0.5
"""How long after the signal a body that has not ended is killed with its process."""


def serve_stop(stop: Callable[[Any, str], None]) -> None:
    """Answer the command ``stop_turn`` by calling ``stop(state, turn_id)``, in the worker's main thread."""

    def answer(state: Any, turn_id: str = "", **_: object) -> dict[str, str]:  # noqa: ANN401 - Celery's own signature
        stop(state, turn_id)
        return {"ok": turn_id}

    control_command(name=STOP_COMMAND, args=[("turn_id", str)])(answer)


def serve_drain(drain: Drain) -> None:
    """Answer the command ``drain``, in the main thread, with whether this worker drains; ``begin`` asks it to."""

    def answer(_state: object, *, begin: bool = False, **_: object) -> dict[str, bool]:
        if begin:
            drain.ask()
        return {"draining": drain.is_asked}

    control_command(name=DRAIN_COMMAND, args=[("begin", bool)])(answer)


def stop_tools(state: Any, turn_id: str) -> None:  # noqa: ANN401 - Celery's own state
    """Signal the pool processes that run calls of the turn, and kill those whose calls do not end."""
    running = active_calls_of_turn(turn_id)
    for run in running:
        log.info("stopping call %s of turn %s", run.call_id, turn_id)
        _signal(run, signal.SIGUSR1)
    if running:
        hub = state.consumer.hub  # call_soon: a thread that was held up first reads which calls have ended meanwhile
        hub.call_later(SECOND_KNOCK_S, hub.call_soon, _kill_unresponsive, turn_id, frozenset(running))


def _kill_unresponsive(turn_id: str, signalled: frozenset[RunningCall]) -> None:
    for run in signalled.intersection(active_calls_of_turn(turn_id)):
        log.warning("call %s of turn %s did not stop; ending its process", run.call_id, turn_id)
        _signal(run, signal.SIGKILL)


def _signal(run: RunningCall, sig: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid_of(run), sig)
