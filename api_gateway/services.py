"""What a request's handler works with: what the process has once, and what is the tenant's who asks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.agents import Agents
from api_gateway.answers import Turn
from api_gateway.artifacts import ArtifactFiles, Artifacts
from api_gateway.background import Background
from api_gateway.batches.creation import BatchCreator
from api_gateway.batches.store import Batches
from api_gateway.body_places import BodyPlaces
from api_gateway.caller import MayGoOn
from api_gateway.coalescing import Gathered, SingleFlight
from api_gateway.config import Settings
from api_gateway.limits.rates import TurnRates
from api_gateway.limits.spending import Spending
from api_gateway.live import LiveEvents
from api_gateway.metrics.figures import FleetFigures
from api_gateway.metrics.traffic import Traffic
from api_gateway.patience import answered_within
from api_gateway.problems import Problem
from api_gateway.publisher import Publisher
from api_gateway.requests import LONGEST_ID, is_id
from api_gateway.sessions import Sessions
from api_gateway.turns.creation import TurnCreator
from api_gateway.turns.heads import Head
from api_gateway.turns.inputs import Inputs
from api_gateway.turns.store import Turns
from api_gateway.usage.reader import UsageReader
from api_gateway.webhooks.deliverer import Deliverer
from api_gateway.webhooks.reading import Webhooks
from harness_worker.wire import TRACEPARENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One process's collaborators, whoever asks; wired in ``app``."""

    settings: Settings
    engine: AsyncEngine
    files: ArtifactFiles | None
    rates: TurnRates
    spending: Spending
    body_places: BodyPlaces
    walking: defaultdict[str, asyncio.Lock]
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
    """What serves one tenant, and reaches nothing of another; wired in ``app`` for each request."""

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


def shared_of(request: Request) -> Shared:
    """What the process has once."""
    return cast("Shared", request.app.state.shared)


def services_of(request: Request) -> Services:
    """The services of the tenant for whom the guard let the request in; nobody is served whom it has not seen."""
    services_for: Callable[[str, MayGoOn, str | None], Services] = request.app.state.services_for
    return services_for(request.state.tenant, request.state.may_go_on, traceparent_of(request))


def traceparent_of(request: Request) -> str | None:
    """The span that the client names as the caller's; what names none is nobody's fault, and ignored (W3C)."""
    given = request.headers.getlist("traceparent")
    return given[0] if len(given) == 1 and TRACEPARENT.fullmatch(given[0]) else None


def turn_id_of(turn_id: str) -> str:
    """A path's turn id; one that no database could hold is not found."""
    if not is_id(turn_id):
        raise no_such_turn(turn_id)
    return turn_id


def no_such_turn(turn_id: str) -> Problem:
    """404 for a turn."""
    return Problem("not_found", f"there is no turn {turn_id[:LONGEST_ID]!r}")


async def existing_turn(turn_id: str, services: Services) -> Turn:
    """The turn with its calls.

    Raises:
        Problem: 404 ``not_found``.
    """
    turn = await services.turns.one(turn_id)
    if turn is None:
        raise no_such_turn(turn_id)
    return turn


async def turn_now(turn: Turn, services: Services, limit_s: float) -> Turn:
    """The turn as it is; as it was if the database does not answer within so many seconds."""
    try:
        return await answered_within(limit_s, existing_turn(turn.id, services))
    except (SQLAlchemyError, TimeoutError):
        return turn


async def ask_to_stop(turn_id: str, services: Services) -> Turn | None:
    """Ask a turn to stop; the turn as it was then, ``None`` if there is none that goes on."""
    asked = await services.turns.request_cancel(turn_id)
    if asked is None:
        return None
    turn, priority = asked
    await services.shared.publisher.interrupt(turn_id, priority, services.tenant)
    return turn


SharedDep = Annotated[Shared, Depends(shared_of)]
ServicesDep = Annotated[Services, Depends(services_of)]
TurnId = Annotated[str, Depends(turn_id_of)]
