"""The catalogue that coordinators publish: every tenant's."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.answers import AgentList
from api_gateway.rows import agent_of
from harness_worker.schema import agents


class Agents:
    """Reads of the catalogue. Every method is one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def all(self) -> AgentList:
        """Every agent, by name, without what cannot be shown."""
        async with self._engine.connect() as connection:
            rows = await connection.execute(select(agents).order_by(agents.c.name))
            return AgentList(data=[agent for agent in map(agent_of, rows) if agent is not None])

    async def published(self) -> dict[str, float]:
        """When each agent was published last, by name; seconds since the epoch."""
        query = select(agents.c.name, agents.c.published_at).order_by(agents.c.name)
        async with self._engine.connect() as connection:
            return {row.name: row.published_at for row in await connection.execute(query)}
