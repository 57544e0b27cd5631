"""A coordinator: its tasks, and what runs beside them."""

from __future__ import annotations

import logging
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
from harness_worker.errors import HarnessError
from harness_worker.faults import Faults, faulty_models
from harness_worker.ports import ignore
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
    """Register a coordinator's tasks; what runs beside them, to be started."""
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
        artifacts=fleet.artifacts,
        gate=fleet.gate,
        dispatcher=fleet.dispatcher,
        events=fleet.events,
        models=models,
        holding=heartbeat.holding,
        count=tally.add,
        trace=ignore if tracing is None else tracing.tell,
    )
    judging = Judging(
        store=fleet.store,
        scores=fleet.scores,
        judges=registry.judges,
        models=models,
        agents=registry.agents,
        memories=memories,
        clock=SystemClock(),
    )
    fleet.app.register_task(AdvanceTask(coordinator))
    fleet.app.register_task(JudgeTask(judging))
    longest = settings.max_body_bytes
    submitting = Submitting(
        store=fleet.store, catalogue=fleet.catalogue, dispatcher=fleet.dispatcher, longest_bytes=longest
    )
    fleet.app.register_task(SubmitTask(submitting))
    aside = ThreadPoolExecutor(max_workers=STOP_THREADS, thread_name_prefix="stop")

    def stop(_state: object, turn_id: str) -> None:
        heartbeat.stop_turn(turn_id)
        aside.submit(look_at_stopped, coordinator, turn_id)  # the pool's threads may all be waiting for models

    serve_stop(stop)
    sweep = make_artifact_sweep(settings, fleet.artifacts)
    judges = JudgeLook(scores=fleet.scores, dispatcher=fleet.dispatcher, duties=judging.duties)
    besides = (tally.tell, judges, _publishing(fleet, knowledge), sweep)
    reconciler = Reconciler(fleet.store, fleet.dispatcher, every_s=settings.reconcile_s, besides=besides)
    return (heartbeat, reconciler) if tracing is None else (heartbeat, reconciler, tracing)


def _publishing(fleet: Fleet, knowledge: Knowledge) -> Publishing:
    return Publishing(fleet.catalogue, fleet.settings.app or "", tuple(knowledge.agents.values()), SystemClock())


def look_at_stopped(coordinator: Coordinator, turn_id: str) -> None:
    """Look at a turn that is told to stop. Never raises: nobody asks what became of this look."""
    try:
        coordinator.advance(turn_id, was_told=True)
    except HarnessError as error:
        log.warning("turn %s not looked at, the reconciler will see to it: %s", turn_id, error)
    except Exception:  # a bug of ours must be seen
        log.exception("turn %s not looked at", turn_id)
