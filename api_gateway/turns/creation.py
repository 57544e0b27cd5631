"""Making a turn: the single transaction behind ``POST /v1/turns``, including its idempotency key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from api_gateway.limits.admission import check_queue
from api_gateway.limits.spending import UNLIMITED, Allowance
from api_gateway.problems import Problem, invalid_at
from api_gateway.requests.turns import TurnRequest
from api_gateway.turns.answers import Turn
from api_gateway.turns.caller import Caller
from api_gateway.turns.forking import Fork, Origin, origin_of
from api_gateway.turns.idempotency import Earlier, IdempotencyClaim
from api_gateway.turns.new_turns import NewTurn, caps_of, clamped
from api_gateway.turns.rows import TURN_COLUMNS, turn_of
from api_gateway.turns.session_order import Place, taken_place
from harness_worker.schema import messages, turn_events, turns, webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTurn:
    """A turn that a request has made.

    Args:
        turn: The turn as it was made.
        request: The request that it was made from.
        ahead: The unfinished turns of its session that it waits for, as (id, priority), in order.
    """

    turn: Turn
    request: TurnRequest
    ahead: tuple[tuple[str, str], ...]

    @property
    def made_id(self) -> str:
        """The turn's id."""
        return self.turn.id


Created: TypeAlias = MadeTurn | Earlier
"""A request's turn: made by the request itself, or by an earlier one with the same key."""


class TurnCreator:
    """Makes the turns of one tenant.

    Args:
        caller: The tenant that asks, and its limits.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._writer = caller.writer

    async def create(
        self,
        wanted: TurnRequest | Fork,
        claim: IdempotencyClaim | None,
        *,
        follows: str | None = None,
        allowance: Allowance = UNLIMITED,
        on_commit: Callable[[], None] | None = None,
    ) -> Created:
        """Insert a queued turn with its message and first event, or find the one an earlier request with the key made.

        Args:
            wanted: The turn to make.
            claim: The request's idempotency key.
            follows: The turn that must be the last of its session before this one.
            allowance: Whether the tenant's daily budget allows new turns.
            on_commit: Called before the commit of a new turn: from then on it may exist, whatever is raised.

        Raises:
            Problem: 404 ``unknown_agent``, 422 ``idempotency_mismatch``, 409 ``idempotency_in_flight``, 409
                ``session_busy``, 422 ``invalid_request`` (another turn is the last), 429 ``queue_full``, 402
                ``budget_exhausted``, and what ``origin_of`` raises; then nothing is written and the key is not used up.
        """
        turn_id = self._caller.new_id()
        async with self._writer.begin() as connection:
            earlier = await self._caller.keys.claim(connection, claim, turn_id) if claim else None
            if earlier is not None:
                return earlier
            allowance.check()
            request, origin = await self._resolved(connection, wanted)
            turn, place = await self._insert(connection, turn_id, request, follows, origin)
            if on_commit is not None:
                on_commit()
        return MadeTurn(turn=turn, request=request, ahead=place.ahead)

    async def _resolved(
        self, connection: AsyncConnection, wanted: TurnRequest | Fork
    ) -> tuple[TurnRequest, Origin | None]:
        if not isinstance(wanted, Fork):
            return wanted, None
        origin = await origin_of(connection, self._caller.tenant, wanted)
        return origin.request, origin

    async def answered(self, claim: IdempotencyClaim, status_code: int) -> None:
        """Remember the first answer's status code."""
        async with self._writer.begin() as connection:
            await self._caller.keys.answered(connection, claim, status_code)

    async def _insert(
        self,
        connection: AsyncConnection,
        turn_id: str,
        request: TurnRequest,
        follows: str | None,
        origin: Origin | None,
    ) -> tuple[Turn, Place]:
        caps = await caps_of(connection, {request.agent: ["body", "agent"]})
        if self._caller.limits.queue is not None:
            await check_queue(connection, self._caller.tenant, self._caller.limits.queue)
        session_id = request.session_id or self._caller.new_id()
        place = await taken_place(connection, self._caller.tenant, session_id, request.multitask or "enqueue")
        if follows is not None:
            await self._check_last(connection, follows, session_id, place.number - 1)
        new = NewTurn(
            id=turn_id,
            tenant=self._caller.tenant,
            session_id=session_id,
            number=place.number,
            waits=bool(place.ahead),
            request=request,
            budget=clamped(caps[request.agent], self._caller.limits.budget, request.budget),
            now=place.now,
            look_at=place.look_at,
            traceparent=self._caller.traceparent,
            origin=origin,
        )
        return await _stored(connection, new), place

    async def _check_last(self, connection: AsyncConnection, turn_id: str, session_id: str, number: int) -> None:
        """Refuse to follow a turn that is not the session's last: the model would read the later ones too."""
        place = (turns.c.tenant == self._caller.tenant, turns.c.session_id == session_id, turns.c.number == number)
        last = (await connection.execute(select(turns.c.id).where(*place))).scalar_one_or_none()
        if last is None:  # `harness prune` has removed it
            raise Problem("not_found", f"there is no turn {turn_id!r} any more")
        if last != turn_id:
            msg = f"{turn_id} was already continued, and a conversation does not fork: continue from {last}"
            raise invalid_at(["body", "previous_response_id"], msg)


async def _stored(connection: AsyncConnection, new: NewTurn) -> Turn:
    inserted = await connection.execute(insert(turns).values(new.row()).returning(*TURN_COLUMNS))
    await connection.execute(insert(messages).values(new.message()))
    for copy in () if new.origin is None else new.origin.copies(new.id):
        await connection.execute(copy)
    await connection.execute(insert(turn_events).values(new.event()))
    webhook = new.webhook()
    if webhook is not None:
        await connection.execute(insert(webhooks).values(webhook))
    return turn_of(inserted.one(), ())
