"""Making a batch: the one transaction behind ``POST /v1/batches``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Table, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.batches.answers import Batch
from api_gateway.batches.requests import BatchItem, BatchParams, BatchRequest
from api_gateway.batches.session_order import BatchPlace, taken_places
from api_gateway.batches.status import BatchState, batch_of
from api_gateway.database import chunks_of
from api_gateway.limits.admission import check_queue
from api_gateway.limits.spending import Allowance
from api_gateway.turns.answers import Budget
from api_gateway.turns.caller import Caller
from api_gateway.turns.idempotency import Earlier, IdempotencyClaim
from api_gateway.turns.new_turns import Caps, NewTurn, Row, caps_of, clamped
from harness_worker.schema import batches, db_now, messages, turn_events, turns, webhooks
from harness_worker.wire import QUEUE_LOOK_S, TurnStatus

LOOKED_AT_A_S: Final = 20.0
"""How many turns of a batch become due a second, so that coordinators in search of due turns also find other ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBatch:
    """A batch that a request has made.

    Args:
        batch: The batch as it was made.
        ready: Its turns that wait for no other turn, as (id, priority), in order.
    """

    batch: Batch
    ready: Sequence[tuple[str, str]]


class BatchCreator:
    """Makes the batches of one tenant.

    Args:
        caller: The tenant that asks, and its limits.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._writer = caller.writer

    async def create(
        self, request: BatchRequest, claim: IdempotencyClaim | None, allowance: Allowance
    ) -> MadeBatch | Earlier:
        """Insert a batch with all its turns, or find the one that an earlier request with the same key made.

        Args:
            request: The turns; no two have the same ``custom_id``.
            claim: The request's idempotency key.
            allowance: Whether the tenant's daily budget allows new turns.

        Raises:
            Problem: 404 ``unknown_agent``, 422 ``idempotency_mismatch``, 429 ``queue_full``, 402
                ``budget_exhausted``; nothing is written then, and the key is not used up.
        """
        batch_id = self._caller.new_id()
        async with self._writer.begin() as connection:
            earlier = await self._caller.keys.claim(connection, claim, batch_id) if claim else None
            if earlier is not None:
                return earlier
            allowance.check()
            return await self._insert(connection, batch_id, request)

    async def _insert(self, connection: AsyncConnection, batch_id: str, request: BatchRequest) -> MadeBatch:
        items = request.requests
        caps = await caps_of(connection, _agents(items))
        if self._caller.limits.queue is not None:
            await check_queue(connection, self._caller.tenant, self._caller.limits.queue, len(items))
        wanted = [item.params.session_id or self._caller.new_id() for item in items]
        places = await taken_places(connection, self._caller.tenant, wanted)
        # Read once the sessions are locked, so that it is later than the times of the turns before these.
        now: float = (await connection.execute(select(db_now()))).scalar_one()
        row = {"id": batch_id, "tenant": self._caller.tenant, "total": len(items), "created_at": now}
        inserted = await connection.execute(
            insert(batches).values(**row, metadata=request.metadata or {}).returning(batches)
        )
        new = self._turns(batch_id, items, places, caps, now)
        for some in chunks_of(new):
            await _store(connection, some)
        return MadeBatch(
            batch=batch_of(inserted.one(), BatchState(numbers={TurnStatus.QUEUED: len(items)}, goes_on=True)),
            ready=[_woken(turn) for turn, place in zip(new, places, strict=True) if not place.is_behind],
        )

    def _turns(
        self,
        batch_id: str,
        items: Sequence[BatchItem],
        places: Sequence[BatchPlace],
        caps: Mapping[str, Caps],
        now: float,
    ) -> list[NewTurn]:
        usual = {agent: clamped(each, self._caller.limits.budget) for agent, each in caps.items()}
        ids = sorted(self._caller.new_id() for _ in items)
        return [
            NewTurn(
                id=ids[position],
                tenant=self._caller.tenant,
                session_id=place.session_id,
                number=place.number,
                waits=True,
                followed=place.is_followed,
                request=item.params,
                budget=self._budget(item.params, usual, caps),
                now=now,
                look_at=now + position / LOOKED_AT_A_S + (QUEUE_LOOK_S if place.is_behind else 0.0),
                traceparent=self._caller.traceparent,
                batch_id=batch_id,
                custom_id=item.custom_id,
            )
            for position, (item, place) in enumerate(zip(items, places, strict=True))
        ]

    def _budget(self, params: BatchParams, usual: Mapping[str, Budget], caps: Mapping[str, Caps]) -> Budget:
        """The turn's budget; turns that ask for none share their agent's, which was worked out once."""
        if params.budget is None:
            return usual[params.agent]
        return clamped(caps[params.agent], self._caller.limits.budget, params.budget)


def _agents(items: Sequence[BatchItem]) -> dict[str, list[str | int]]:
    """The agents of the turns, each with the place in the request where it is named first."""
    places: dict[str, int] = {}
    for place, item in enumerate(items):
        places.setdefault(item.params.agent, place)
    return {agent: ["body", "requests", place, "params", "agent"] for agent, place in places.items()}


def _woken(turn: NewTurn) -> tuple[str, str]:
    return turn.id, turn.request.queue_priority


async def _store(connection: AsyncConnection, new: Sequence[NewTurn]) -> None:
    rows: dict[Table, list[Row]] = {
        turns: [turn.row() for turn in new],
        messages: [turn.message() for turn in new],
        turn_events: [turn.event() for turn in new],
        webhooks: [row for turn in new if (row := turn.webhook()) is not None],
    }
    for table, some in rows.items():
        if some:
            await connection.execute(insert(table), some)
