"""A tool worker: a task for each tool, heartbeats of running calls, and reports of calls whose process died."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from celery.signals import worker_process_init

from harness_worker.adapters.celery.pool_processes import allow_processes, begin, leave_after_job, make_group_leader
from harness_worker.adapters.celery.requests import active_calls, active_calls_of
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.adapters.celery.stopping import serve_stop, stop_tools
from harness_worker.adapters.celery.tasks import ToolTask
from harness_worker.adapters.embedded.parent_death import die_with_parent
from harness_worker.bootstrap.engine import make_call_runner
from harness_worker.bootstrap.fleet import Fleet
from harness_worker.bootstrap.knowledge import Knowledge
from harness_worker.core.registration.registry import Registry
from harness_worker.entrypoints.worker.garbage import keep_what_is_loaded
from harness_worker.errors import SYSTEM_ERRORS, HarnessError
from harness_worker.faults import Faults, faulty_deadline
from harness_worker.ports import Gate, RunningCall
from harness_worker.turn.heartbeat import CallHeartbeat

T = TypeVar("T")

log = logging.getLogger(__name__)


def serve_tools(
    fleet: Fleet, registry: Registry, knowledge: Knowledge, faults: Faults | None
) -> tuple[CallHeartbeat, ...]:
    """Register a task for each tool, and return what runs beside them, not started yet."""
    runner = make_call_runner(
        fleet,
        registry=registry,
        knowledge=knowledge,
        soft_deadline=SignalDeadline if faults is None else faulty_deadline(SignalDeadline, faults),
        count=fleet.count,
        on_failure=leave_after_job,
    )
    for name in runner.tools:
        fleet.app.register_task(ToolTask(name, runner, partial(_lost, fleet)))

    worker_pid = os.getpid()

    def forked(**_: object) -> None:
        begin(
            partial(die_with_parent, worker_pid),
            make_group_leader,
            allow_processes,
            keep_knocks_for_bodies,
            fleet.forked,
            keep_what_is_loaded,
        )

    worker_process_init.connect(forked, weak=False)
    serve_stop(stop_tools)
    return _heartbeats(fleet, registry)


def _lost(fleet: Fleet, run: RunningCall, overran: bool) -> None:
    """Report that a call's process is known to be dead, and have its turn looked at.

    The journal is told first, and each part is independent: a silent gate must not keep a write's end from being
    reported, nor the reverse. This runs in the worker's main thread, so it waits only briefly; a loss that cannot be
    reported shows when the call's lease expires.
    """
    what = f"death of the process of {run}"
    priority = _try(f"{what} not reported to the journal", lambda: fleet.store.lose_call(run))
    _try(f"{what} not reported to the gate", lambda: _lose_read(fleet.gate, run, overran=overran))
    _try(f"{what} not reported to the locks", lambda: fleet.locks.lose(run))
    if priority is not None:
        fleet.dispatcher.advance(run.turn_id, priority)


def _try(otherwise: str, work: Callable[[], T]) -> T | None:
    try:
        return work()
    except (HarnessError, *SYSTEM_ERRORS) as error:
        log.warning("%s: %r", otherwise, error)
        return None


def _lose_read(gate: Gate, run: RunningCall, *, overran: bool) -> None:
    if overran:
        gate.beat([run])  # the process lived until the call's time was over: a timeout, not a loss
    gate.lose(run)


def _heartbeats(fleet: Fleet, registry: Registry) -> tuple[CallHeartbeat, ...]:
    """One thread for each: a silent gate must not cost writes their leases, nor a silent journal the reads theirs."""
    settings = fleet.settings
    beats: dict[str, Callable[[], None]] = {
        "writes": lambda: fleet.store.beat_calls(active_calls(reads=False), settings.lease_ttl_s),
        "reads": lambda: fleet.gate.beat(active_calls(reads=True)),
    }
    if locking := frozenset(tool.name for tool in registry.tools.values() if tool.lock is not None):
        beats["locks"] = lambda: fleet.locks.beat(active_calls_of(locking))
    return tuple(CallHeartbeat(what, beat, every_s=settings.heartbeat_s) for what, beat in beats.items())
