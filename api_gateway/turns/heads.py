"""How far turns have come: what event streams, and requests that wait for a turn, ask again and again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.turns.calls import asking_below
from harness_worker.schema import turns
from harness_worker.wire import FINAL_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How far a turn has come.

    Args:
        status: The turn's status, as text: one that only a later version knows must not fail the readings of others.
        last_seq: The number of its last event.
        asks_below: Whether a turn below it waits for a person.
    """

    status: str
    last_seq: int
    asks_below: bool

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended, so that no further event follows."""
        return self.status in FINAL_STATUSES


async def read_heads(engine: AsyncEngine, turn_ids: Collection[str]) -> Mapping[str, Head]:
    """The heads of these turns, of any tenant, by id; unknown turns are left out."""
    return await heads_where(engine, turns.c.id.in_(turn_ids))


async def heads_where(engine: AsyncEngine, condition: ColumnElement[bool]) -> Mapping[str, Head]:
    """The heads of the turns that meet the condition, by id."""
    query = select(turns.c.id, turns.c.status, turns.c.last_seq, turns.c.parked_below).where(condition)
    async with engine.connect() as connection:
        rows = (await connection.execute(query)).all()
        asking = await asking_below(connection, rows)
    return {row.id: Head(status=row.status, last_seq=row.last_seq, asks_below=bool(asking[row.id])) for row in rows}
