"""A worker of either role in the foreground: Celery's own worker, with our tasks, heartbeats and drain."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from celery.signals import worker_process_init, worker_ready

from harness_worker.adapters.celery.children import Children, make_group_leader
from harness_worker.adapters.celery.requests import active_calls
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.adapters.celery.steps import DRAIN_TICK_S, Drain, guarded, ticker
from harness_worker.adapters.celery.stopping import serve_stop, stop_tools
from harness_worker.adapters.celery.tasks import AdvanceTask, ToolTask
from harness_worker.adapters.embedded.parent_death import die_with_parent
from harness_worker.bootstrap.engine import make_call_runner, make_coordinator
from harness_worker.bootstrap.fleet import Fleet, make_fleet
from harness_worker.bootstrap.models import make_models
from harness_worker.config import Settings
from harness_worker.core.registry import Registry
from harness_worker.errors import HarnessError
from harness_worker.ports import RunningCall
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.heartbeat import VisitHeartbeat
from harness_worker.turn.reconciler import Reconciler
from harness_worker.wire import DEFAULT_TOOL_QUEUE, Priority, turn_queue

log = logging.getLogger(__name__)

COORDINATOR = "coordinator"
TOOLS = "tools"
CHILDREN_TICK_S = 0.25
STOP_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wiring:
    """A worker's parts and the services that run beside its tasks."""

    fleet: Fleet
    services: tuple[VisitHeartbeat | Reconciler, ...]


def run_worker(
    role: str,
    registry: Registry,
    settings: Settings,
    *,
    queues: Sequence[str] = (),
    concurrency: int,
    ready_file: Path | None = None,
) -> int:
    """Serve until a signal says stop, then drain.

    Args:
        role: ``coordinator`` or ``tools``.
        registry: The agents and tools to serve.
        settings: Where everything is.
        queues: Only these; every queue of the role if empty.
        concurrency: Threads of a coordinator, processes of a tool worker.
        ready_file: Gets one line as soon as the worker consumes.

    Returns:
        The exit code.

    Raises:
        HarnessError: The database does not answer, or a setting is wrong.
    """
    fleet = make_fleet(settings, pool_size=concurrency + 2)
    fleet.store.publish_catalogue(settings.app or "", registry.agents.values())
    wiring = _coordinator(fleet, registry) if role == COORDINATOR else _tools(fleet, registry)
    drain = Drain(grace_s=settings.grace_s)
    fleet.app.steps["worker"].add(ticker(partial(_ticks, fleet, role, drain)))
    worker = fleet.app.Worker(
        hostname=f"{role}-{os.getpid()}@{socket.gethostname()}",
        pool_cls="threads" if role == COORDINATOR else "prefork",
        concurrency=concurrency,
        queues=",".join(queues or default_queues(role, registry)),
        loglevel=settings.log_level,
        without_gossip=True,
        without_mingle=True,
        optimization="fair",
        quiet=True,
    )
    return _serve(worker, wiring, drain, ready_file)


def default_queues(role: str, registry: Registry) -> tuple[str, ...]:
    """Every queue a worker of that role serves."""
    if role == COORDINATOR:
        return tuple(turn_queue(priority) for priority in Priority)
    return tuple(sorted({DEFAULT_TOOL_QUEUE, *(tool.queue for tool in registry.tools.values())}))


def _serve(worker: Any, wiring: _Wiring, drain: Drain, ready_file: Path | None) -> int:  # noqa: ANN401
    def ready(**_: object) -> None:
        signal.signal(signal.SIGTERM, drain.on_signal)
        signal.signal(signal.SIGINT, drain.on_signal)
        if ready_file is not None:
            ready_file.write_text(f"{os.getpid()}\n")

    worker_ready.connect(ready, weak=False)
    for service in wiring.services:
        service.start()
    worker.start()
    _leave(os.EX_OK if drain.is_asked else worker.exitcode or os.EX_OK)
    return os.EX_OK


def _leave(code: int) -> None:
    """Exit at once: a thread that still waits for a model must not keep the process; its turn goes on elsewhere."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _coordinator(fleet: Fleet, registry: Registry) -> _Wiring:
    settings = fleet.settings
    heartbeat = VisitHeartbeat(fleet.store, every_s=settings.heartbeat_s, ttl_s=settings.lease_ttl_s)
    coordinator = make_coordinator(
        settings=settings,
        registry=registry,
        store=fleet.store,
        gate=fleet.gate,
        dispatcher=fleet.dispatcher,
        events=fleet.events,
        models=make_models(settings, registry.agents.values()),
        holding=heartbeat.holding,
    )
    fleet.app.register_task(AdvanceTask(coordinator))
    aside = ThreadPoolExecutor(max_workers=STOP_THREADS, thread_name_prefix="stop")

    def stop(_state: object, turn_id: str) -> None:
        heartbeat.stop_turn(turn_id)
        aside.submit(_advance, coordinator, turn_id)  # the pool's threads may all be waiting for models

    serve_stop(stop)
    reconciler = Reconciler(fleet.store, fleet.dispatcher, every_s=settings.reconcile_s)
    return _Wiring(fleet=fleet, services=(heartbeat, reconciler))


def _advance(coordinator: Coordinator, turn_id: str) -> None:
    try:
        coordinator.advance(turn_id, was_told=True)
    except HarnessError as error:
        log.warning("turn %s not looked at, the reconciler will see to it: %s", turn_id, error)


def _tools(fleet: Fleet, registry: Registry) -> _Wiring:
    runner = make_call_runner(
        settings=fleet.settings,
        registry=registry,
        store=fleet.store,
        gate=fleet.gate,
        dispatcher=fleet.dispatcher,
        soft_deadline=SignalDeadline(),
    )
    for name in registry.tools:
        fleet.app.register_task(ToolTask(name, runner, partial(_lost, fleet)))

    def forked(**_: object) -> None:
        make_group_leader()
        die_with_parent()
        keep_knocks_for_bodies()
        fleet.forked()

    worker_process_init.connect(forked, weak=False)
    serve_stop(stop_tools)
    return _Wiring(fleet=fleet, services=())


def _lost(fleet: Fleet, run: RunningCall) -> None:
    """A call's process is known to be dead: say so, and have somebody look."""
    try:
        fleet.gate.lose(run)
        fleet.store.lose_call(run)
        loaded = fleet.store.load(run.turn_id)
        if loaded is not None:
            fleet.dispatcher.advance(run.turn_id, loaded[0].priority)
    except HarnessError as error:
        log.warning("death of the process of call %s of turn %s not told: %s", run.call_id, run.turn_id, error)


def _ticks(fleet: Fleet, role: str, drain: Drain, worker: Any) -> Iterable[tuple[float, Callable[[], None]]]:  # noqa: ANN401
    yield DRAIN_TICK_S, partial(drain.tick, worker)
    if role == TOOLS:
        children = Children(worker.pool)
        yield fleet.settings.heartbeat_s, guarded("heartbeat of calls", partial(_beat, fleet), HarnessError)
        yield CHILDREN_TICK_S, children.reap


def _beat(fleet: Fleet) -> None:
    # The journal first: a silent gate must not cost the writes their leases.
    writes = active_calls(reads=False)
    if writes:
        fleet.store.beat_calls(writes, fleet.settings.lease_ttl_s)
    reads = active_calls(reads=True)
    if reads:
        fleet.gate.beat(reads)
