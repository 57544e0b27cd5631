"""A worker of either role in the foreground: Celery's own worker, with our tasks, heartbeats and drain."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from celery.signals import worker_process_init, worker_ready

from harness_worker.adapters.celery.children import ToolPool, allow_processes, begin, make_group_leader
from harness_worker.adapters.celery.requests import active_calls, active_calls_of
from harness_worker.adapters.celery.soft_deadline import SignalDeadline, keep_knocks_for_bodies
from harness_worker.adapters.celery.steps import DRAIN_TICK_S, Drain, ticker
from harness_worker.adapters.celery.stopping import serve_drain, serve_stop, stop_tools
from harness_worker.adapters.celery.tasks import AdvanceTask, JudgeTask, SubmitTask, ToolTask
from harness_worker.adapters.embedded.parent_death import die_with_parent
from harness_worker.adapters.redis.counters import Tally
from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.bootstrap.engine import make_artifact_sweep, make_call_runner, make_coordinator
from harness_worker.bootstrap.fleet import Fleet, make_fleet
from harness_worker.bootstrap.knowledge import Knowledge, make_knowledge
from harness_worker.bootstrap.models import make_models
from harness_worker.bootstrap.tracing import make_traces, make_tracing
from harness_worker.config import Settings
from harness_worker.core.registry import Registry
from harness_worker.entrypoints.roles import Role
from harness_worker.entrypoints.worker_name import WorkerName
from harness_worker.errors import HarnessError
from harness_worker.ports import Gate, RunningCall
from harness_worker.testing.faults import Faults, faulty_deadline, faulty_fleet, faulty_models, strike_before_ack
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.heartbeat import CallHeartbeat, VisitHeartbeat
from harness_worker.turn.judging import JudgeLook, Judging
from harness_worker.turn.reconciler import Reconciler
from harness_worker.turn.rounds import Rounds
from harness_worker.turn.submitting import Submitting
from harness_worker.turn.tracing import Tracing, untold
from harness_worker.wire import DEFAULT_TOOL_QUEUE, Priority, turn_queue

log = logging.getLogger(__name__)

CHILDREN_TICK_S = 0.25
TASK_EVENTS_TICK_S = 0.2
STOP_THREADS = 2
COLLECT_AFTER = 10_000


LAST_TRACES_S = 2.0
"""How long a worker that leaves may go on sending traces, of the time that a drain keeps for the end."""

Services: TypeAlias = tuple[Rounds | Tracing, ...]
"""What runs beside a worker's tasks."""


def run_worker(
    role: Role,
    registry: Registry,
    settings: Settings,
    *,
    queues: Sequence[str] = (),
    concurrency: int,
    ready_file: Path | None = None,
) -> int:
    """Serve until a signal says stop, then drain.

    Args:
        role: What it does.
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
    knowledge = make_knowledge(settings, registry.agents)
    fleet = make_fleet(settings, pool_size=concurrency + 2)
    fleet.store.publish_catalogue(settings.app or "", knowledge.agents.values())
    faults = Faults(settings.faults) if settings.faults is not None else None
    if faults is not None:
        fleet = faulty_fleet(fleet, faults)
        strike_before_ack(faults)
    if role is Role.COORDINATOR:
        services = _coordinator(fleet, registry, knowledge, faults)
    else:
        services = _tools(fleet, registry, knowledge, faults)
    name = WorkerName(role, settings.broker_url or settings.redis_url or "")
    worker_process_init.connect(name.disown, weak=False)
    drain = Drain(grace_s=settings.grace_s)
    serve_drain(drain)
    fleet.app.steps["worker"].add(ticker(partial(_ticks, role, drain)))
    worker = fleet.app.Worker(
        hostname=name.full,
        pool_cls="threads" if role is Role.COORDINATOR else ToolPool,
        concurrency=concurrency,
        queues=",".join(queues or default_queues(role, registry)),
        loglevel=settings.log_level,
        without_gossip=True,
        without_mingle=True,
        optimization="fair",
        quiet=True,
    )
    return _serve(worker, services, drain, ready_file)


def default_queues(role: Role, registry: Registry) -> tuple[str, ...]:
    """Every queue a worker of that role serves."""
    if role is Role.COORDINATOR:
        return tuple(turn_queue(priority) for priority in Priority)
    return tuple(sorted({DEFAULT_TOOL_QUEUE, *(tool.queue for tool in registry.tools.values())}))


def _serve(
    worker: Any,  # noqa: ANN401 - Celery's own worker
    services: Services,
    drain: Drain,
    ready_file: Path | None,
) -> int:
    def ready(**_: object) -> None:
        signal.signal(signal.SIGTERM, drain.on_signal)
        signal.signal(signal.SIGINT, drain.on_signal)
        if ready_file is not None:
            ready_file.write_text(f"{os.getpid()}\n")

    worker_ready.connect(ready, weak=False)
    for service in services:
        service.start()
    _keep_what_is_loaded()
    worker.start()
    for service in services:
        if isinstance(service, Tracing):
            service.finish(LAST_TRACES_S)
    _leave(os.EX_OK if drain.is_asked else worker.exitcode or os.EX_OK)
    return os.EX_OK


def _keep_what_is_loaded() -> None:
    """Leave what is loaded by now out of garbage collection, and collect less often: most of it lives on for ever."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def _leave(code: int) -> None:
    """Exit at once: a thread that still waits for a model must not keep the process; its turn goes on elsewhere."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _coordinator(fleet: Fleet, registry: Registry, knowledge: Knowledge, faults: Faults | None) -> Services:
    settings = fleet.settings
    models = make_models(settings, registry.models)
    if faults is not None:
        models = faulty_models(models, faults)
    heartbeat = VisitHeartbeat(fleet.store, every_s=settings.heartbeat_s, ttl_s=settings.lease_ttl_s)
    memories = SqlMemories(fleet.engine)
    tally = Tally(fleet.redis)
    tracing = make_tracing(settings, make_traces(settings), fleet.store, knowledge.agents, tally.add)
    coordinator = make_coordinator(
        settings=settings,
        knowledge=knowledge,
        memories=memories,
        store=fleet.store,
        gate=fleet.gate,
        dispatcher=fleet.dispatcher,
        events=fleet.events,
        models=models,
        holding=heartbeat.holding,
        count=tally.add,
        trace=untold if tracing is None else tracing.tell,
    )
    judging = Judging(
        store=fleet.store,
        scores=fleet.scores,
        judges=registry.judges,
        models=models,
        agents=registry.agents,
        memories=memories,
    )
    fleet.app.register_task(AdvanceTask(coordinator))
    fleet.app.register_task(JudgeTask(judging))
    fleet.app.register_task(SubmitTask(Submitting(store=fleet.store, dispatcher=fleet.dispatcher)))
    aside = ThreadPoolExecutor(max_workers=STOP_THREADS, thread_name_prefix="stop")

    def stop(_state: object, turn_id: str) -> None:
        heartbeat.stop_turn(turn_id)
        aside.submit(_advance, coordinator, turn_id)  # the pool's threads may all be waiting for models

    serve_stop(stop)
    sweep = make_artifact_sweep(settings, fleet.store)
    judges = JudgeLook(scores=fleet.scores, dispatcher=fleet.dispatcher, duties=judging.duties)
    besides = (tally.tell, judges, sweep)
    reconciler = Reconciler(fleet.store, fleet.dispatcher, every_s=settings.reconcile_s, besides=besides)
    return (heartbeat, reconciler) if tracing is None else (heartbeat, reconciler, tracing)


def _advance(coordinator: Coordinator, turn_id: str) -> None:
    try:
        coordinator.advance(turn_id, was_told=True)
    except HarnessError as error:
        log.warning("turn %s not looked at, the reconciler will see to it: %s", turn_id, error)


def _tools(fleet: Fleet, registry: Registry, knowledge: Knowledge, faults: Faults | None) -> Services:
    deadline = SignalDeadline()
    runner = make_call_runner(
        settings=fleet.settings,
        registry=registry,
        knowledge=knowledge,
        store=fleet.store,
        gate=fleet.gate,
        dispatcher=fleet.dispatcher,
        soft_deadline=deadline if faults is None else faulty_deadline(deadline, faults),
        locks=fleet.locks,
        events=fleet.events,
        count=fleet.count,
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
            _keep_what_is_loaded,
        )

    worker_process_init.connect(forked, weak=False)
    serve_stop(stop_tools)
    return _beats(fleet, registry)


def _lost(fleet: Fleet, run: RunningCall, overran: bool) -> None:
    """A call's process is known to be dead: say so, and have somebody look.

    The journal first, and each on its own: a silent gate must not keep a write's end from being told, nor the reverse.
    """
    what = f"death of the process of call {run.call_id} of turn {run.turn_id}"
    _try(f"{what} not told to the journal", lambda: fleet.store.lose_call(run))
    _try(f"{what} not told to the gate", lambda: _lose_read(fleet.gate, run, overran=overran))
    _try(f"{what} not told to the locks", lambda: fleet.locks.lose(run))
    _try(f"nobody woken by the {what}", lambda: _wake(fleet, run.turn_id))


def _try(otherwise: str, work: Callable[[], object]) -> None:
    try:
        work()
    except HarnessError as error:
        log.warning("%s: %s", otherwise, error)


def _lose_read(gate: Gate, run: RunningCall, *, overran: bool) -> None:
    if overran:
        gate.beat([run])  # it lived until its time was over: a timeout, not a loss
    gate.lose(run)


def _wake(fleet: Fleet, turn_id: str) -> None:
    loaded = fleet.store.load(turn_id)
    if loaded is not None:
        fleet.dispatcher.advance(turn_id, loaded[0].priority)


def _ticks(
    role: Role,
    drain: Drain,
    worker: Any,  # noqa: ANN401 - Celery's own worker
) -> Iterable[tuple[float, Callable[[], None]]]:
    yield DRAIN_TICK_S, partial(drain.tick, worker)
    yield TASK_EVENTS_TICK_S, worker.consumer.flush_events
    if role is Role.TOOLS:
        yield CHILDREN_TICK_S, worker.pool.look


def _beats(fleet: Fleet, registry: Registry) -> Services:
    """A thread each: a silent gate must not cost the writes their leases, nor a silent journal the reads theirs."""
    every_s = fleet.settings.heartbeat_s
    beats = [("writes", partial(_beat_writes, fleet)), ("reads", partial(_beat_reads, fleet))]
    locking = frozenset(tool.name for tool in registry.tools.values() if tool.lock is not None)
    if locking:
        beats.append(("locks", partial(_beat_locks, fleet, locking)))
    return tuple(CallHeartbeat(what, beat, every_s=every_s) for what, beat in beats)


def _beat_locks(fleet: Fleet, locking: frozenset[str]) -> None:
    fleet.locks.beat(active_calls_of(locking))


def _beat_writes(fleet: Fleet) -> None:
    writes = active_calls(reads=False)
    if writes:
        fleet.store.beat_calls(writes, fleet.settings.lease_ttl_s)


def _beat_reads(fleet: Fleet) -> None:
    reads = active_calls(reads=True)
    if reads:
        fleet.gate.beat(reads)
