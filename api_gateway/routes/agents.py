"""The catalogue of agents that coordinators publish."""

from __future__ import annotations

from fastapi import APIRouter

from api_gateway.agents import AgentList
from api_gateway.routes.dependencies import NoQueryDep, ServicesDep
from api_gateway.routes.openapi import problems

router = APIRouter(tags=["agents"])


@router.get("/v1/agents", responses=problems())
async def list_agents(services: ServicesDep, _query: NoQueryDep) -> AgentList:
    """Every agent with its tools and its budget, ordered by name."""
    return await services.agents.all()
