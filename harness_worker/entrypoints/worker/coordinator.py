"""A coordinator: its tasks, and the threads beside them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from harness_worker.adapters.celery.stopping import serve_stop
from harness_worker.adapters.celery.tasks import AdvanceTask, JudgeTask, SubmitTask
from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.redis.counters import Tally
from harness_worker.adapters.sql.memories import SqlMemories
from harness_worker.bootstrap.engine import make_artifact_sweep, make_coordinator
from harness_worker.bootstrap.fleet import Fleet
from harness_worker.bootstrap.knowledge import Knowledge
from harness_worker.bootstrap.models import make_models
from harness_worker.bootstrap.tracing import make_traces, make_tracing
from harness_worker.core.registration.registry import Registry
from harness_worker.errors import SYSTEM_ERRORS, HarnessError
from harness_worker.faults import Faults, faulty_models
from harness_worker.ports import MemoryStore, ModelClient, ignore
from harness_worker.threads.rounds import Rounds
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.heartbeat import VisitHeartbeat
from harness_worker.turn.judging import JudgeLook, Judging
from harness_worker.turn.publishing import Publishing
from harness_worker.turn.reconciler import Reconciler
from harness_worker.turn.submitting import Submitting
from harness_worker.turn.tracing import Tracing

log = logging.getLogger(__name__)

STOP_THREADS: Final = 2


def serve_turns(
    fleet: Fleet, registry: Registry, knowledge: Knowledge, faults: Faults | None
) -> tuple[Rounds | Tracing, ...]:
    """Register a coordinator's tasks, and return what runs beside them, not started yet."""
    settings, tally, memories = fleet.settings, Tally(fleet.redis), SqlMemories(fleet.engine)
    models = make_models(settings, registry.models)
    if faults is not None:
        models = faulty_models(models, faults)
    heartbeat = VisitHeartbeat(fleet.store, every_s=settings.heartbeat_s, ttl_s=settings.lease_ttl_s)
    tracing = make_tracing(settings, make_traces(settings), fleet.store, knowledge.agents, tally.add)
    coordinator = make_coordinator(
        fleet,
        knowledge=knowledge,
        memories=memories,
        models=models,
        holding=heartbeat.holding,
        count=tally.add,
        trace=ignore if tracing is None else tracing.tell,
    )
    judging = _judging(fleet, registry, models, memories)
    for task in (AdvanceTask(coordinator), JudgeTask(judging), SubmitTask(_submitting(fleet))):
        fleet.app.register_task(task)
    _stop_when_told(coordinator, heartbeat)
    judges = JudgeLook(scores=fleet.scores, dispatcher=fleet.dispatcher, duties=judging.duties)
    sweep = make_artifact_sweep(fleet)
    besides = (tally.flush, judges, _publishing(fleet, knowledge), sweep)
    reconciler = Reconciler(fleet.store, fleet.dispatcher, every_s=settings.reconcile_s, besides=besides)
    return (heartbeat, reconciler) if tracing is None else (heartbeat, reconciler, tracing)


def _judging(fleet: Fleet, registry: Registry, models: Mapping[str, ModelClient], memories: MemoryStore) -> Judging:
    return Judging(
        store=fleet.store,
        scores=fleet.scores,
        judges=registry.judges,
        models=models,
        agents=registry.agents,
        memories=memories,
        clock=SystemClock(),
    )


def _submitting(fleet: Fleet) -> Submitting:
    return Submitting(
        store=fleet.store,
        catalogue=fleet.catalogue,
        dispatcher=fleet.dispatcher,
        longest_bytes=fleet.settings.max_body_bytes,
    )


def _publishing(fleet: Fleet, knowledge: Knowledge) -> Publishing:
    return Publishing(fleet.catalogue, fleet.settings.app or "", tuple(knowledge.agents.values()), SystemClock())


def _stop_when_told(coordinator: Coordinator, heartbeat: VisitHeartbeat) -> None:
    """Serve the stop command: a turn's visits give up whatever they are waiting for, and the turn is looked at."""
    threads = ThreadPoolExecutor(max_workers=STOP_THREADS, thread_name_prefix="stop")

    def stop(_state: object, turn_id: str) -> None:
        heartbeat.stop_turn(turn_id)
        threads.submit(look_at_stopped, coordinator, turn_id)  # the pool's threads may all be waiting for models

    serve_stop(stop)


def look_at_stopped(coordinator: Coordinator, turn_id: str) -> None:
    """Look at a turn that was told to stop. Never raises, because nobody waits for the result of this look."""
    try:
        coordinator.advance(turn_id, was_told=True)
    except (HarnessError, *SYSTEM_ERRORS) as error:
        log.warning("turn %s not looked at, the reconciler will see to it: %r", turn_id, error)
    except Exception:  # a bug of ours must be seen
        log.exception("turn %s not looked at", turn_id)
