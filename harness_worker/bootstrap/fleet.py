"""A worker process's access to the outside: database, Redis, Celery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from celery import Celery
from sqlalchemy import Engine

from harness_worker.adapters.celery.app import make_app
from harness_worker.adapters.celery.dispatcher import CeleryDispatcher
from harness_worker.adapters.redis.client import RedisClient
from harness_worker.adapters.redis.counters import count
from harness_worker.adapters.redis.events import RedisEvents
from harness_worker.adapters.redis.gate import RedisGate
from harness_worker.adapters.redis.locks import RedisLocks
from harness_worker.adapters.sql.artifacts import SqlArtifacts
from harness_worker.adapters.sql.catalogue import SqlCatalogue
from harness_worker.adapters.sql.engine import BEAT, close, dispose_inherited, make_engine, timeouts_within
from harness_worker.adapters.sql.scores import SqlScores
from harness_worker.adapters.sql.store import SqlTurnStore
from harness_worker.bootstrap.engine import Ports, make_artifact_reader, timing_of
from harness_worker.config import Settings
from harness_worker.errors import ConfigError
from harness_worker.ports import Catalogue, Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet(Ports):
    """A worker process's access to the outside. Made once; safe to use after a fork once :meth:`forked` was called.

    Args:
        app: The Celery application.
        engine: The database.
        beat_engine: The database for heartbeats, with short timeouts.
        redis: The Redis of gate and events.
        catalogue: The published agents.
        scores: The judges' scores.
    """

    app: Celery
    engine: Engine
    beat_engine: Engine
    redis: RedisClient
    catalogue: Catalogue
    scores: Scores

    def count(self, name: str) -> None:
        """Increment the counter that ``/metrics`` shows under that name; never raises."""
        count(self.redis, name)

    def forked(self) -> None:
        """Forget connections that belong to the parent process."""
        dispose_inherited(self.engine)
        dispose_inherited(self.beat_engine)
        self.redis.disconnect()

    def close(self) -> None:
        """Close every connection."""
        close(self.engine)
        close(self.beat_engine)
        self.redis.disconnect()


def make_fleet(settings: Settings, *, pool_size: int = 10, queues: Mapping[str, str] = MappingProxyType({})) -> Fleet:
    """Everything in a worker process that talks to the outside; connects to nothing yet.

    Args:
        settings: They say where everything is.
        pool_size: How many connections to the database it may have.
        queues: The queue of each tool by name; see ``CeleryDispatcher``.

    Raises:
        ConfigError: A URL is missing or not allowed.
    """
    if settings.redis_url is None or settings.database_url is None:
        raise ConfigError("HARNESS_REDIS_URL and HARNESS_DATABASE_URL must be set for a worker")
    app = make_app(settings, redis_url=settings.redis_url, broker_url=settings.broker_url)
    redis = RedisClient(settings.redis_url)
    engine = make_engine(settings.database_url, timeouts=timeouts_within(settings.lease_ttl_s), pool_size=pool_size)
    events = RedisEvents(redis)
    beats = make_engine(settings.database_url, timeouts=BEAT, pool_size=1)
    artifacts = SqlArtifacts(engine)
    return Fleet(
        settings=settings,
        app=app,
        engine=engine,
        beat_engine=beats,
        redis=redis,
        events=events,
        store=SqlTurnStore(
            engine,
            events,
            beats=beats,
            artifact_ttl_s=settings.artifact_ttl_s,
            tenant_turns=settings.tenant_turns,
        ),
        artifacts=artifacts,
        artifact_reader=make_artifact_reader(settings, artifacts),
        catalogue=SqlCatalogue(engine),
        scores=SqlScores(engine),
        gate=RedisGate(redis, lease_ttl_s=settings.lease_ttl_s),
        locks=RedisLocks(redis, lease_ttl_s=settings.lease_ttl_s),
        dispatcher=CeleryDispatcher(app, timing=timing_of(settings), queues=queues),
    )
