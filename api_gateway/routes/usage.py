"""Usage: what turns have used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api_gateway.routes.dependencies import NoQueryDep, ServicesDep, TurnId
from api_gateway.routes.openapi import METADATA, problems
from api_gateway.usage.answers import TurnUsage, UsageReport
from api_gateway.usage.requests import UsageQuery
from api_gateway.use_cases.turn_lookup import existing

router = APIRouter(tags=["usage"])


@router.get("/v1/turns/{turn_id}/usage", responses=problems(404))
async def turn_usage(turn_id: TurnId, _query: NoQueryDep, services: ServicesDep) -> TurnUsage:
    """What one turn has used so far: in total, by model call, and by tool."""
    return existing(await services.usage.turn(turn_id), turn_id)


@router.get("/v1/usage", responses=problems(), openapi_extra={"parameters": [METADATA]})
async def usage(services: ServicesDep, query: Annotated[UsageQuery, Query()]) -> UsageReport:
    """What the turns made from ``from`` up to ``to`` have used, summed for each value of ``by``."""
    return await services.usage.report(query)
