"""The catalogue of agents that coordinators publish."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api_gateway.agents import AgentList
from api_gateway.requests.queries import NoQuery
from api_gateway.routes.dependencies import ServicesDep
from api_gateway.routes.openapi import problems

router = APIRouter(tags=["agents"])


@router.get("/v1/agents", responses=problems())
async def list_agents(services: ServicesDep, _query: Annotated[NoQuery, Query()]) -> AgentList:
    """Every agent with its tools and its budget, ordered by name."""
    return await services.agents.all()
