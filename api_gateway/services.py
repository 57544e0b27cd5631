"""What the request handlers work with: services shared by the whole process, and those of the request's tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.agents import Agents
from api_gateway.artifacts import ArtifactFiles, Artifacts
from api_gateway.batches.creation import BatchCreator
from api_gateway.batches.store import Batches
from api_gateway.concurrency.background import Background
from api_gateway.concurrency.coalescing import Gathered, SingleFlight
from api_gateway.config import Settings
from api_gateway.limits.rates import TurnRates
from api_gateway.limits.spending import Spending
from api_gateway.metrics.figures import FleetFigures
from api_gateway.metrics.traffic import Traffic
from api_gateway.publisher import Publisher
from api_gateway.requests.places import BodyPlaces, TenantPlaces
from api_gateway.sessions import Sessions
from api_gateway.streams.event_stream import EventStream, Position
from api_gateway.streams.live import LiveEvents
from api_gateway.streams.permission import MayGoOn
from api_gateway.turns.creation import TurnCreator
from api_gateway.turns.heads import Head
from api_gateway.turns.inputs import Inputs
from api_gateway.turns.store import Turns
from api_gateway.usage.reader import UsageReader
from api_gateway.webhooks.deliverer import Deliverer
from api_gateway.webhooks.reading import Webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The services of one process that requests of all tenants share; wired in ``app``."""

    settings: Settings
    engine: AsyncEngine
    files: ArtifactFiles | None
    rates: TurnRates
    spending: Spending
    body_places: BodyPlaces
    scans: TenantPlaces
    publisher: Publisher
    missing: SingleFlight[Mapping[str, str]]
    background: Background
    live: LiveEvents
    heads: Gathered[Head]
    traffic: Traffic
    figures: FleetFigures
    deliverer: Deliverer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one tenant, which reach nothing of any other; wired in ``app`` for each request."""

    tenant: str
    may_go_on: MayGoOn
    shared: Shared
    turns: Turns
    usage: UsageReader
    artifacts: Artifacts
    sessions: Sessions
    agents: Agents
    creator: TurnCreator
    batches: Batches
    batch_creator: BatchCreator
    inputs: Inputs
    webhooks: Webhooks

    def stream_of(self, turn_id: str, *, after: int = 0, heartbeat_s: float | None = None) -> EventStream:
        """A stream of the turn's events after ``after``, with the settings' heartbeat unless another is given."""
        shared = self.shared
        return EventStream(
            turn_id=turn_id,
            position=Position(seq=after),
            turns=self.turns,
            heads=shared.heads,
            live=shared.live,
            heartbeat_s=shared.settings.sse_heartbeat_s if heartbeat_s is None else heartbeat_s,
            may_go_on=self.may_go_on,
        )
