"""Makes the engine's parts from the ports that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from uuid_utils.compat import uuid7

from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.adapters.clock import SystemClock
from harness_worker.bootstrap.knowledge import Knowledge
from harness_worker.bootstrap.retrieval import make_retriever
from harness_worker.config import Settings
from harness_worker.core.prompting.artifact_reading import reader
from harness_worker.core.registration.registry import Registry
from harness_worker.core.registration.tools import ToolSpec
from harness_worker.core.timing import Timing
from harness_worker.core.visits import MODEL_SLACK_S, Visit
from harness_worker.ports import (
    Artifacts,
    Clock,
    Dispatcher,
    EventSink,
    Gate,
    Locks,
    MemoryStore,
    ModelClient,
    SoftDeadline,
    StopSignal,
    TurnStore,
    ignore,
)
from harness_worker.turn.artifacts import ArtifactFetch, ArtifactSweep
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.finalizer import Finalizer
from harness_worker.turn.hooking import HookCaller
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.running.call_runner import CallRunner, call_runner
from harness_worker.turn.running.locking import LockKeeper
from harness_worker.turn.running.tool_body import ToolBody
from harness_worker.turn.tool_selector import ToolSelector
from harness_worker.wire import FINALIZER_FAILURES, HOOK_FAILURES, LATE_RESULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the engine of a process works over.

    Args:
        settings: The process's settings.
        store: The journal.
        artifacts: Finds artifacts.
        artifact_reader: The tool that reads them, of :func:`make_artifact_reader`.
        gate: The arbiter of reads.
        locks: Locks, which one call at a time holds.
        dispatcher: Sends work.
        events: Carries events and hints to live readers.
    """

    settings: Settings
    store: TurnStore
    artifacts: Artifacts
    artifact_reader: ToolSpec
    gate: Gate
    locks: Locks
    dispatcher: Dispatcher
    events: EventSink


def timing_of(settings: Settings) -> Timing:
    """The protocol's times, from the settings."""
    return Timing(
        lease_ttl_s=settings.lease_ttl_s,
        visit_s=settings.model_timeout_s + MODEL_SLACK_S,
        look_s=settings.look_s,
        hard_s=settings.hard_limit_slack_s,
        grace_s=settings.late_grace_s,
        attempt_cap=settings.attempt_cap,
        approval_s=settings.approval_timeout_s,
    )


def make_coordinator(  # noqa: PLR0913 - what a coordinator is made of
    ports: Ports,
    *,
    knowledge: Knowledge,
    memories: MemoryStore,
    models: Mapping[str, ModelClient],
    holding: Callable[[Visit], AbstractContextManager[StopSignal]],
    count: Callable[[str], None] = ignore,
    trace: Callable[[str], None] = ignore,
) -> Coordinator:
    """A coordinator over these ports."""
    settings, store, clock = ports.settings, ports.store, SystemClock()
    hooks = HookCaller(lambda _point: count(HOOK_FAILURES))
    model_step = ModelStep(
        store=store,
        models=models,
        clock=clock,
        timeout_s=settings.model_timeout_s,
        hint=ports.events.hint,
        hooks=hooks,
        artifact_reader=ports.artifact_reader,
        gathering=knowledge.gathering(settings, memories),
        selector=ToolSelector(make_retriever),
    )
    return Coordinator(
        store=store,
        gate=ports.gate,
        dispatcher=ports.dispatcher,
        model_step=model_step,
        agents=knowledge.agents,
        holding=holding,
        new_owner=new_id,
        timing=timing_of(settings),
        finalizer=Finalizer(
            agents=knowledge.agents,
            store=store,
            hooks=hooks,
            dispatcher=ports.dispatcher,
            on_failure=lambda _step: count(FINALIZER_FAILURES),
            trace=trace,
        ),
        threshold_chars=settings.artifact_threshold_chars,
        hooks=hooks,
        clock=clock,
        artifact_reader=ports.artifact_reader,
    )


def make_call_runner(
    ports: Ports,
    *,
    registry: Registry,
    knowledge: Knowledge,
    soft_deadline: SoftDeadline,
    count: Callable[[str], None] = ignore,
    on_failure: Callable[[], None] = ignore,
) -> CallRunner:
    """A runner of calls over these ports."""
    settings, clock = ports.settings, SystemClock()
    own = {ports.artifact_reader.name: ports.artifact_reader, **knowledge.tools}
    return call_runner(
        store=ports.store,
        artifacts=ports.artifacts,
        gate=ports.gate,
        dispatcher=ports.dispatcher,
        body=_tool_body(settings, soft_deadline, clock),
        keeper=LockKeeper(locks=ports.locks, clock=clock),
        tools={**own, **registry.tools},
        own=own,
        agents=knowledge.agents,
        hooks=HookCaller(lambda _point: count(HOOK_FAILURES)),
        on_late=partial(count, LATE_RESULTS),
        timing=timing_of(settings),
        clock=clock,
        hint=ports.events.hint,
        on_failure=on_failure,
    )


def make_artifact_sweep(ports: Ports) -> ArtifactSweep:
    """Makes what removes expired artifacts."""
    return ArtifactSweep(ports.artifacts, FsspecBlobs(artifact_url_of(ports.settings)), SystemClock())


def _tool_body(settings: Settings, soft_deadline: SoftDeadline, clock: Clock) -> ToolBody:
    return ToolBody(
        soft_deadline=soft_deadline,
        blobs=FsspecBlobs(artifact_url_of(settings)),
        clock=clock,
        new_artifact_id=new_artifact_id,
        threshold_chars=settings.artifact_threshold_chars,
    )


def make_artifact_reader(settings: Settings, artifacts: Artifacts) -> ToolSpec:
    """Makes the tool that reads artifacts; building its schema takes about a millisecond."""
    fetch = ArtifactFetch(artifacts=artifacts, blobs=FsspecBlobs(artifact_url_of(settings)))
    return reader(fetch, threshold_chars=settings.artifact_threshold_chars)


def artifact_url_of(settings: Settings) -> str:
    """The URL of the artifact store: as set, else a directory under the home."""
    # The path is taken as it is, because fsspec decodes nothing.
    return settings.artifact_url or f"file://{settings.home.expanduser().absolute()}/artifacts"


def new_id() -> str:
    """A new time-ordered id (uuid7)."""
    return str(uuid7())


def new_artifact_id() -> str:
    """A new ``art_<hex>``."""
    return f"art_{uuid7().hex}"
