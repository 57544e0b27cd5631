"""The catalogue of agents that coordinators publish; all tenants share it."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import AnyRow
from api_gateway.turns.answers import Answer, Budget
from harness_worker.schema import agents

_log = logging.getLogger(__name__)


class AgentTool(Answer):
    """A tool that an agent may use; ``schema`` is the JSON Schema of its arguments."""

    name: str
    description: str
    effect: str | None
    arguments_schema: dict[str, Any] = Field(alias="schema")


class Agent(Answer):
    """An agent that workers have published; its ``budget`` is both the default and the cap for its turns."""

    name: str
    model: str
    tools: list[AgentTool]
    budget: Budget
    parallel: bool


class AgentList(Answer):
    """Every agent, ordered by name."""

    data: list[Agent]


class Agents:
    """Reads of the catalogue. Every method is one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def all(self) -> AgentList:
        """Every agent, ordered by name, without those that cannot be shown."""
        async with self._engine.connect() as connection:
            rows = await connection.execute(select(agents).order_by(agents.c.name))
            return AgentList(data=[agent for agent in map(_agent_of, rows) if agent is not None])

    async def published(self) -> dict[str, float]:
        """When each agent was last published, by name; seconds since the epoch."""
        query = select(agents.c.name, agents.c.published_at).order_by(agents.c.name)
        async with self._engine.connect() as connection:
            return {row.name: row.published_at for row in await connection.execute(query)}


def _agent_of(row: AnyRow) -> Agent | None:
    """The agent of a row of ``agents``; ``None`` if no answer can hold it, as with one from an older worker."""
    try:
        agent = Agent(name=row.name, model=row.model, tools=row.tools, budget=row.budget, parallel=row.parallel)
        agent.model_dump_json()
    except ValueError as error:
        _log.warning("agent %r is not listed: %s", row.name, " ".join(str(error).split()))
        return None
    return agent
