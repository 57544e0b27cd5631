"""How far turns have come: what streams of events ask for again and again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from harness_worker.schema import turns
from harness_worker.wire import FINAL_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A turn's last event, and whether it has ended."""

    last_seq: int
    has_ended: bool


async def read_heads(engine: AsyncEngine, turn_ids: Collection[str]) -> Mapping[str, Head]:
    """The heads of these turns, of any tenant; unknown ones have none."""
    query = select(turns.c.id, turns.c.status, turns.c.last_seq).where(turns.c.id.in_(turn_ids))
    async with engine.connect() as connection:
        rows = await connection.execute(query)
        return {row.id: Head(last_seq=row.last_seq, has_ended=row.status in FINAL_STATUSES) for row in rows}
