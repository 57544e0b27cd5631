"""Wires the parts together. Nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from celery import Celery
from sqlalchemy import Engine
from uuid_utils.compat import uuid7

from harness_worker.adapters.blobs.store import FsspecBlobs
from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.adapters.clock import SystemClock
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.events import RedisEvents
from harness_worker.adapters.redis.gate import RedisGate
from harness_worker.adapters.scripted.client import ScriptedModel
from harness_worker.adapters.sql.engine import BEAT, dispose_inherited, make_engine
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.config import Settings
from harness_worker.core.registry import Registry
from harness_worker.core.timing import Timing
from harness_worker.core.visits import Visit
from harness_worker.errors import ConfigError
from harness_worker.ports import Dispatcher, Gate, ModelClient, SoftDeadline, TurnStore
from harness_worker.turn.call_runner import CallRunner
from harness_worker.turn.coordinator import Coordinator
from harness_worker.turn.model_step import ModelStep
from harness_worker.turn.tool_body import ToolBody

VISIT_SLACK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a worker process needs of the outside. Made once; safe to inherit through a fork after :meth:`forked`.

    Args:
        settings: This process's settings.
        app: The Celery application.
        engine: The database.
        beat_engine: The database for heartbeats, with short timeouts.
        redis: The Redis of gate and events.
        store: The journal.
        gate: The arbiter of reads.
        dispatcher: Sends work.
    """

    settings: Settings
    app: Celery
    engine: Engine
    beat_engine: Engine
    redis: RedisClient
    store: TurnStore
    gate: Gate
    dispatcher: Dispatcher

    def forked(self) -> None:
        """Forget connections that belong to the parent process."""
        dispose_inherited(self.engine)
        dispose_inherited(self.beat_engine)
        self.redis.disconnect()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self.beat_engine.dispose()
        self.redis.disconnect()


def make_fleet(settings: Settings, *, pool_size: int = 10) -> Fleet:
    """Everything of a worker process that speaks to the outside; connects to nothing yet.

    Raises:
        ConfigError: A URL is missing or not allowed.
    """
    if settings.redis_url is None or settings.database_url is None:
        raise ConfigError("HARNESS_REDIS_URL and HARNESS_DATABASE_URL must be set for a worker")
    app = make_app(settings, redis_url=settings.redis_url, broker_url=settings.broker_url)
    redis = RedisClient(settings.redis_url)
    engine = make_engine(settings.database_url, pool_size=pool_size)
    beats = make_engine(settings.database_url, timeouts=BEAT, pool_size=1)
    return Fleet(
        settings=settings,
        app=app,
        engine=engine,
        beat_engine=beats,
        redis=redis,
        store=SqlTurnStore(engine, RedisEvents(redis), beats=beats),
        gate=RedisGate(redis, lease_ttl_s=settings.lease_ttl_s),
        dispatcher=CeleryDispatcher(app, timing=timing_of(settings)),
    )


def timing_of(settings: Settings) -> Timing:
    """The protocol's times as the settings give them."""
    return Timing(
        lease_ttl_s=settings.lease_ttl_s,
        visit_s=settings.model_timeout_s + VISIT_SLACK_S,
        look_s=settings.look_s,
        hard_s=settings.hard_limit_slack_s,
        grace_s=settings.late_grace_s,
        attempt_cap=settings.attempt_cap,
    )


def make_models() -> Mapping[str, ModelClient]:
    """The model clients, by the prefix of the model's name."""
    return {"scripted": ScriptedModel(clock=SystemClock())}


def make_coordinator(
    *,
    settings: Settings,
    registry: Registry,
    store: TurnStore,
    gate: Gate,
    dispatcher: Dispatcher,
    holding: Callable[[Visit], AbstractContextManager[None]],
) -> Coordinator:
    """A coordinator over these ports."""
    step = ModelStep(
        store=store, models=make_models(), clock=SystemClock(), timeout_s=settings.model_timeout_s
    )
    return Coordinator(
        store=store,
        gate=gate,
        dispatcher=dispatcher,
        model_step=step,
        agents=registry.agents,
        holding=holding,
        new_owner=new_id,
        timing=timing_of(settings),
    )


def make_call_runner(
    *,
    settings: Settings,
    registry: Registry,
    store: TurnStore,
    gate: Gate,
    dispatcher: Dispatcher,
    soft_deadline: SoftDeadline,
) -> CallRunner:
    """A runner of calls over these ports."""
    body = ToolBody(
        soft_deadline=soft_deadline,
        blobs=FsspecBlobs(artifact_url_of(settings)),
        clock=SystemClock(),
        new_artifact_id=new_artifact_id,
        threshold_chars=settings.artifact_threshold_chars,
    )
    return CallRunner(
        store=store,
        gate=gate,
        dispatcher=dispatcher,
        body=body,
        tools=registry.tools,
        clock=SystemClock(),
        timing=timing_of(settings),
    )


def artifact_url_of(settings: Settings) -> str:
    """Where artifacts go: as set, else under the home."""
    return settings.artifact_url or (settings.home.resolve() / "artifacts").as_uri()


def new_id() -> str:
    """A new time-ordered id (uuid7)."""
    return str(uuid7())


def new_artifact_id() -> str:
    """A new ``art_<hex>``."""
    return f"art_{uuid7().hex}"

