"""Runs a worker of either role in the foreground: Celery's own worker, with our tasks, heartbeats and drain."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from celery.app import trace
from celery.signals import worker_process_init, worker_ready, worker_shutting_down

from harness_worker.adapters.celery.bootsteps import DRAIN_TICK_S, Drain, ticker
from harness_worker.adapters.celery.isolation import Surroundings
from harness_worker.adapters.celery.pool_processes import ToolPool
from harness_worker.adapters.celery.stopping import serve_drain
from harness_worker.adapters.celery.thread_pool import AnsweringThreads
from harness_worker.bootstrap.fleet import Fleet, make_fleet
from harness_worker.bootstrap.knowledge import Knowledge, make_knowledge
from harness_worker.config import Settings
from harness_worker.core.registration.registry import Registry
from harness_worker.entrypoints.exiting import exit_at_once
from harness_worker.entrypoints.messages import INTERRUPTED
from harness_worker.entrypoints.worker.coordinator import serve_turns
from harness_worker.entrypoints.worker.garbage import keep_what_is_loaded
from harness_worker.entrypoints.worker.name import WorkerName
from harness_worker.entrypoints.worker.roles import Role
from harness_worker.entrypoints.worker.start_warnings import missing_models, too_long, unused_queues
from harness_worker.entrypoints.worker.tools import serve_tools
from harness_worker.faults import Faults, faulty_fleet, strike_before_ack
from harness_worker.threads.rounds import Rounds
from harness_worker.turn.tracing import Tracing
from harness_worker.wire import DEFAULT_TOOL_QUEUE, Priority, turn_queue

log = logging.getLogger(__name__)

CHILDREN_TICK_S: Final = 0.25
TASK_EVENTS_TICK_S: Final = 0.2

RECEIVED: Final = "Task %(name)s[%(id)s] received: %(args)s %(kwargs)s"
"""Celery's log line, with the arguments that the sender allows to be shown: the ids of turn and call, by which logs are
searched. The line for a success stays without them, because there Celery shows what a producer of ``turn.submit``
allows, which may include a user's text."""

LAST_TRACES_S: Final = 2.0
"""How long an exiting worker may go on sending traces, in seconds; a part of what a drain reserves for the end."""


def run_worker(
    role: Role,
    registry: Registry,
    settings: Settings,
    *,
    queues: Sequence[str],
    concurrency: int,
    ready_file: Path | None,
) -> NoReturn:
    """Serve until a signal asks to stop, then drain and exit.

    Args:
        role: The worker's role.
        registry: The agents and tools to serve.
        settings: This process's settings.
        queues: The queues to serve; every queue of the role if empty.
        concurrency: The number of a coordinator's threads, or of a tool worker's processes.
        ready_file: A file that gets one line as soon as the worker consumes.

    Raises:
        HarnessError: The database does not answer, or a setting is wrong.
    """
    knowledge = make_knowledge(settings, registry.agents)
    queues_of = {tool.name: tool.queue for tool in registry.tools.values()}
    fleet = make_fleet(settings, pool_size=concurrency + 2, queues=queues_of)
    faults = Faults(settings.faults) if settings.faults is not None else None
    if faults is not None:
        fleet = faulty_fleet(fleet, faults)
        strike_before_ack(faults)
    serve = serve_turns if role is Role.COORDINATOR else serve_tools
    services = serve(fleet, registry, knowledge, faults)
    name = WorkerName(role, settings.broker_url or settings.redis_url or "")
    worker_process_init.connect(name.disown, weak=False)
    surroundings = Surroundings()
    worker_process_init.connect(surroundings.restore, weak=False)
    drain = Drain(grace_s=settings.grace_s)
    serve_drain(drain)
    fleet.app.steps["worker"].add(ticker(partial(_ticks, role, drain)))
    served = queues or default_queues(role, registry)
    worker = _make_worker(fleet, role, name=name, queues=served, concurrency=concurrency)
    surroundings.restore()
    _keep_texts_out_of_logs()
    for warning in _warnings(role, registry, settings, served):
        log.warning(warning)
    _publish_or_ping(role, fleet, knowledge)
    _serve(worker, services, drain, ready_file)


def _make_worker(fleet: Fleet, role: Role, *, name: WorkerName, queues: Sequence[str], concurrency: int) -> Any:  # noqa: ANN401 - Celery's own worker
    return fleet.app.Worker(
        hostname=name.full,
        pool_cls=AnsweringThreads if role is Role.COORDINATOR else ToolPool,
        concurrency=concurrency,
        queues=",".join(queues),
        loglevel=fleet.settings.log_level,
        without_gossip=True,
        without_mingle=True,
        optimization="fair",
        quiet=True,
    )


def _publish_or_ping(role: Role, fleet: Fleet, knowledge: Knowledge) -> None:
    """Publish a coordinator's agents; a tool worker only checks that the database answers, and else does not start."""
    if role is Role.COORDINATOR:
        fleet.catalogue.publish(fleet.settings.app or "", knowledge.agents.values())
    else:
        fleet.store.ping()


def _keep_texts_out_of_logs() -> None:
    trace.LOG_RECEIVED = RECEIVED
    logging.getLogger("celery.pool").setLevel(logging.INFO)  # at DEBUG it logs all arguments of a task


def _warnings(role: Role, registry: Registry, settings: Settings, queues: Sequence[str]) -> Iterator[str]:
    if role is Role.COORDINATOR:
        yield from missing_models(registry.models, has_key=settings.anthropic_api_key is not None)
    else:
        yield from too_long((tool for tool in registry.tools.values() if tool.queue in queues), settings.grace_s)
        yield from unused_queues(queues, default_queues(role, registry))


def default_queues(role: Role, registry: Registry) -> tuple[str, ...]:
    """All queues that a worker of that role serves."""
    if role is Role.COORDINATOR:
        return tuple(turn_queue(priority) for priority in Priority)
    return tuple(sorted({DEFAULT_TOOL_QUEUE, *(tool.queue for tool in registry.tools.values())}))


def _serve(
    worker: Any,  # noqa: ANN401 - Celery's own worker
    services: Sequence[Rounds | Tracing],
    drain: Drain,
    ready_file: Path | None,
) -> NoReturn:
    worker._isatty = True  # noqa: SLF001 - else Celery would start the program anew at SIGHUP, even under `nohup`

    def ready(**_: object) -> None:
        signal.signal(signal.SIGTERM, drain.on_signal)
        signal.signal(signal.SIGINT, drain.on_signal)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
            signal.signal(signal.SIGHUP, drain.on_signal)
        if ready_file is not None:
            ready_file.write_text(f"{os.getpid()}\n")

    signals: list[str] = []

    def told(sig: str, **_: object) -> None:
        signals.append(sig)

    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(told, weak=False)
    for service in services:
        service.start()
    keep_what_is_loaded()
    worker.start()
    for service in services:
        if isinstance(service, Tracing):
            service.finish(LAST_TRACES_S)
    # A thread may wait for a model; its turn goes on elsewhere.
    exit_at_once(os.EX_OK if drain.is_asked else _exit_code(worker, signals))


def _exit_code(worker: Any, signals: Sequence[str]) -> int:  # noqa: ANN401 - Celery's own worker
    """That of a Ctrl-C before the worker was ready, if there was one; Celery's is that of a failure."""
    return INTERRUPTED if signal.SIGINT.name in signals else worker.exitcode or os.EX_OK


def _ticks(
    role: Role,
    drain: Drain,
    worker: Any,  # noqa: ANN401 - Celery's own worker
) -> Iterable[tuple[float, Callable[[], None]]]:
    yield DRAIN_TICK_S, partial(drain.tick, worker)
    yield TASK_EVENTS_TICK_S, worker.consumer.flush_events
    if role is Role.TOOLS:
        yield CHILDREN_TICK_S, worker.pool.look
