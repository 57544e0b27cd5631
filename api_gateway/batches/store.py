"""What the gateway reads of a tenant's batches, and asking their turns to stop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, case, false, func, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.batches.answers import Batch, BatchPage, BatchResult
from api_gateway.batches.status import BatchState, batch_of, state_of
from api_gateway.database import AnyRow, writer_of
from api_gateway.listing import AS_MADE, newest_first, next_of, within_bytes
from api_gateway.requests.queries import PageQuery
from api_gateway.turns.calls import call_bytes, calls_by_turn
from api_gateway.turns.rows import TEXT_BYTES, TURN_COLUMNS, turn_of
from harness_worker.schema import batches, db_now, turns
from harness_worker.wire import FINAL_STATUSES, TurnStatus

RESULTS_PAGE: Final = 50
"""How many turns a reader of results has in memory at most; fewer if they are long."""

_RESULT_BYTES: Final = TEXT_BYTES + call_bytes()
_OPEN: Final = turns.c.status.not_in(FINAL_STATUSES)
_GOES_ON: Final = and_(_OPEN, turns.c.cancel_requested == false())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Turns of a batch that were asked to stop, as (id, priority): those yet to begin, and those that have begun."""

    queued: Sequence[tuple[str, str]]
    begun: Sequence[tuple[str, str]]


class Batches:
    """One tenant's batches. Every method is one transaction; absent things are ``None``."""

    def __init__(self, engine: AsyncEngine, tenant: str) -> None:
        self._engine = engine
        self._writer = writer_of(engine)
        self._rows = select(batches).where(batches.c.tenant == tenant)
        self._ids = self._rows.with_only_columns(batches.c.id)

    async def one(self, batch_id: str) -> Batch | None:
        """The batch with that id."""
        async with self._engine.connect() as connection:
            row = (await connection.execute(self._rows.where(batches.c.id == batch_id))).one_or_none()
            return None if row is None else (await self._shown(connection, [row]))[0]

    async def exists(self, batch_id: str) -> bool:
        """Whether there is a batch with that id."""
        query = self._ids.where(batches.c.id == batch_id)
        async with self._engine.connect() as connection:
            return (await connection.execute(query)).one_or_none() is not None

    async def page(self, query: PageQuery) -> BatchPage:
        """One page, newest first."""
        page = newest_first(self._rows, batches, query)
        async with self._engine.connect() as connection:
            found = (await connection.execute(page)).all()
            data = await self._shown(connection, found[: query.limit])
        return BatchPage(data=data, next=next_of(found[: query.limit], len(found)))

    async def has(self, batch_id: str, turn_id: str) -> bool:
        """Whether the turn belongs to the batch."""
        query = select(turns.c.id).where(self._is_of(batch_id), turns.c.id == turn_id)
        async with self._engine.connect() as connection:
            return (await connection.execute(query)).one_or_none() is not None

    async def results(self, batch_id: str, after: str) -> list[BatchResult]:
        """The next ended turns of a batch, those posted after the turn ``after``, in the order of posting."""
        over = select(*TURN_COLUMNS).where(self._is_of(batch_id), ~_OPEN, turns.c.id > after)
        page = over.order_by(turns.c.id).limit(RESULTS_PAGE)
        async with self._engine.connect() as connection:
            found = (await connection.execute(within_bytes(page, turns, _RESULT_BYTES, AS_MADE))).all()
            calls = await calls_by_turn(connection, [row.id for row in found])
        return [BatchResult(custom_id=row.custom_id, turn=turn_of(row, calls[row.id])) for row in found]

    async def request_cancel(self, batch_id: str) -> Stopping:
        """Ask all unfinished turns of a batch to stop.

        Queued turns keep their due time: thousands due at once would starve all others.
        """
        # Locked in the order of all who lock several turns (harness_worker/sessions.py), so that there is no deadlock.
        open_ones = select(turns.c.id).where(self._is_of(batch_id), _OPEN).order_by(turns.c.session_id, turns.c.number)
        at_once = case((turns.c.status == TurnStatus.QUEUED, turns.c.wake_at), else_=db_now())
        change = (
            update(turns)
            .where(turns.c.id.in_(open_ones.with_for_update(key_share=True)))
            .values(cancel_requested=true(), wakes=turns.c.wakes + 1, wake_at=at_once)
            .returning(turns.c.id, turns.c.priority, turns.c.status)
        )
        async with self._writer.begin() as connection:
            asked = (await connection.execute(change)).all()
        queued = [(row.id, row.priority) for row in asked if row.status == TurnStatus.QUEUED]
        begun = [(row.id, row.priority) for row in asked if row.status != TurnStatus.QUEUED]
        return Stopping(queued=queued, begun=begun)

    async def _shown(self, connection: AsyncConnection, rows: Sequence[AnyRow]) -> list[Batch]:
        states = await self._states(connection, [row.id for row in rows])
        return [batch_of(row, states[row.id]) for row in rows]

    async def _states(self, connection: AsyncConnection, batch_ids: Sequence[str]) -> Mapping[str, BatchState]:
        query = (
            select(
                turns.c.batch_id,
                turns.c.status,
                func.count().label("number"),
                func.max(case((_GOES_ON, 1), else_=0)).label("going_on"),
                func.max(turns.c.finished_at).label("last_end"),
            )
            .where(turns.c.batch_id.in_(batch_ids))  # no tenant: SQLite would read all its turns by sessions' index
            .group_by(turns.c.batch_id, turns.c.status)
        )
        found: defaultdict[str, list[AnyRow]] = defaultdict(list)
        for row in await connection.execute(query):
            found[row.batch_id].append(row)
        return {batch_id: state_of(found[batch_id]) for batch_id in batch_ids}

    def _is_of(self, batch_id: str) -> ColumnElement[bool]:
        # The batch's tenant, not the turn's: SQLite would read all turns of that by sessions' index.
        return turns.c.batch_id == self._ids.where(batches.c.id == batch_id).scalar_subquery()
