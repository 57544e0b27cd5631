"""The gateway: wires one process and makes its ASGI application."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from fastapi import Depends, FastAPI
from uuid_utils import compat as uuids

from api_gateway.agents import Agents
from api_gateway.artifacts import ArtifactFiles, Artifacts
from api_gateway.batches.creation import BatchCreator
from api_gateway.batches.store import Batches
from api_gateway.concurrency.background import Background
from api_gateway.concurrency.coalescing import Gathered, SingleFlight
from api_gateway.concurrency.drain import on_stop_signal
from api_gateway.concurrency.lasting import lasting
from api_gateway.config import Settings, load_settings
from api_gateway.database import create_engine
from api_gateway.limits.admission import TenantLimits
from api_gateway.limits.rates import TurnRates
from api_gateway.limits.spending import Spending
from api_gateway.logs import AcceptErrors, log_to_stderr
from api_gateway.metrics.figures import FleetFigures
from api_gateway.metrics.traffic import Traffic
from api_gateway.middleware.answered import Answered, log_access
from api_gateway.middleware.guard import Guard
from api_gateway.middleware.head import HeadAsGet
from api_gateway.middleware.keys import Keys
from api_gateway.middleware.stopping import AnswerCutShort
from api_gateway.problems import install_problem_handlers
from api_gateway.publisher import Publisher
from api_gateway.requests.places import BodyPlaces, scan_places
from api_gateway.routes import (
    agents,
    artifacts,
    batches,
    events,
    health,
    metrics,
    openai,
    sessions,
    turns,
    usage,
    webhooks,
)
from api_gateway.routes.dependencies import no_repeats
from api_gateway.routes.openapi import install_openapi
from api_gateway.services import Services, Shared
from api_gateway.sessions import Sessions
from api_gateway.streams.live import LiveEvents
from api_gateway.streams.permission import MayGoOn
from api_gateway.turns.caller import Caller
from api_gateway.turns.creation import TurnCreator
from api_gateway.turns.heads import read_heads
from api_gateway.turns.inputs import Inputs
from api_gateway.turns.store import Turns
from api_gateway.usage.reader import UsageReader
from api_gateway.webhooks.deliverer import make_deliverer
from api_gateway.webhooks.reading import Webhooks
from harness_worker.errors import ConfigError

TITLE: Final = "Agent harness"
VERSION: Final = "1"
WRONG_USAGE: Final = 2
MESSAGE_PREFIX: Final = "harness: "
"""The prefix of the command line's messages, by which `harness up` finds the gateway's."""


def create_app_from_env() -> FastAPI:
    """The application as uvicorn starts it: settings from the environment, logs to stderr.

    A wrong setting ends the process with exit code 2 and a message that names its variable.
    """
    try:
        settings = load_settings()
        log_to_stderr(settings.log_level)
        return create_app(settings)
    except ConfigError as error:
        sys.stderr.write(f"{MESSAGE_PREFIX}{error}\n")
        raise SystemExit(WRONG_USAGE) from None


def create_app(settings: Settings) -> FastAPI:
    """The application. It makes no connection before it needs one."""
    once = [Depends(no_repeats)]
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        redirect_slashes=False,
        redoc_url=None,  # /docs is enough: each such page runs another host's script with this host's origin
        lifespan=_lifespan,
        dependencies=once,
    )
    shared = app.state.shared = _wire(settings)
    app.state.services_for = partial(_services_for, shared)
    for routes in (turns, events, usage, webhooks, batches, sessions, artifacts, agents, openai, health, metrics):
        app.include_router(routes.router)
    install_problem_handlers(app)
    webhooks.describe_webhooks(app)
    install_openapi(app)
    app.add_middleware(Guard, keys=Keys(shared.engine), keyless=settings.dev_keyless)
    app.add_middleware(AnswerCutShort)
    app.add_middleware(Answered, report=lambda scope, status, _: shared.traffic.count(scope, status))
    app.add_middleware(HeadAsGet)
    app.add_middleware(Answered, report=log_access)
    return app


def _wire(settings: Settings) -> Shared:
    engine = create_engine(settings.database_url)
    publisher = Publisher(settings.broker, settings.publish_timeout_s)
    deliverer = make_deliverer(engine, settings)
    return Shared(
        settings=settings,
        engine=engine,
        files=None if settings.artifact_url is None else ArtifactFiles(settings.artifact_url),
        rates=TurnRates(settings.redis_url, settings.tenant_rate),
        spending=Spending(engine, settings.tenant_dollars),
        body_places=BodyPlaces(),
        scans=scan_places(),
        publisher=publisher,
        missing=SingleFlight(partial(health.look_for_missing, engine, publisher)),
        background=Background(),
        live=LiveEvents(settings.redis_url, deliverer.poke if deliverer else None),
        heads=Gathered(partial(read_heads, engine)),
        traffic=Traffic(),
        figures=FleetFigures(engine, publisher, settings.redis_url),
        deliverer=deliverer,
    )


def _services_for(shared: Shared, tenant: str, may_go_on: MayGoOn, traceparent: str | None) -> Services:
    engine, settings = shared.engine, shared.settings
    limits = TenantLimits(budget=settings.tenant_budget, queue=settings.tenant_queue)
    caller = Caller(engine=engine, tenant=tenant, new_id=new_id, limits=limits, traceparent=traceparent)
    return Services(
        tenant=tenant,
        may_go_on=may_go_on,
        shared=shared,
        turns=Turns(engine, tenant, shared.scans),
        usage=UsageReader(engine, tenant, shared.scans),
        artifacts=Artifacts(engine, tenant, shared.files),
        sessions=Sessions(engine, tenant),
        agents=Agents(engine),
        creator=TurnCreator(caller),
        batches=Batches(engine, tenant),
        batch_creator=BatchCreator(caller),
        inputs=Inputs(engine, tenant),
        webhooks=Webhooks(engine, tenant),
    )


def new_id() -> str:
    """A new id: a version 7 UUID, so that ids sort by when they were made."""
    return str(uuids.uuid7())


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    shared: Shared = app.state.shared
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(AcceptErrors())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(shared.engine.dispose)
        stack.callback(shared.publisher.close)
        if shared.files is not None:
            stack.callback(shared.files.close)
        stack.push_async_callback(shared.rates.close)
        stack.push_async_callback(shared.background.close)
        await stack.enter_async_context(lasting(shared.live.run, name="live-events"))
        if shared.deliverer is not None:
            await stack.enter_async_context(shared.deliverer.running())
        stack.enter_context(on_stop_signal(lambda: loop.call_soon_threadsafe(_stop, shared)))
        yield


def _stop(shared: Shared) -> None:
    shared.live.stop()
    if shared.deliverer is not None:
        shared.deliverer.stop()
