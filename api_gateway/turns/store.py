"""What the gateway reads of a tenant's turns, and asking them to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Row, and_, bindparam, exists, func, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.database import writer_of
from api_gateway.listing import AS_LISTED, Order, newest_first, next_of, octets, within_bytes
from api_gateway.requests.places import TenantPlaces
from api_gateway.requests.queries import EventsQuery, TurnsQuery
from api_gateway.turns.answers import EventPage, Message, Score, ScoreList, Turn, TurnPage, TurnWithParts
from api_gateway.turns.calls import WAITING_BYTES, approvals_below, calls_by_turn, pending_approvals, within_bytes_below
from api_gateway.turns.heads import Head, heads_where
from api_gateway.turns.narrowing import is_selective, may_scan, narrowed
from api_gateway.turns.rows import TEXT_BYTES, TURN_COLUMNS, event_of, message_of, score_of, summary_of, turn_of
from harness_worker.schema import agents, db_now, messages, scores, tool_calls, turn_events, turns
from harness_worker.wire import FINAL_STATUSES, MEMORY, TurnStatus

_IS_TENANTS: Final = exists().where(turns.c.id == bindparam("of_turn"), turns.c.tenant == bindparam("of_tenant"))
_EVENTS: Final = within_bytes(
    select(turn_events)
    .where(turn_events.c.turn_id == bindparam("of_turn"), turn_events.c.seq > bindparam("after"), _IS_TENANTS)
    .order_by(turn_events.c.seq)
    .limit(bindparam("most", type_=Integer)),
    turn_events,
    octets(turn_events.c.data),
    Order(by=("seq",)),
)
"""A page of a turn's events; built only once, because every event stream begins with this query."""


_BEFORE: Final = turns.alias("before")
_TERMS: Final = (
    select(
        _BEFORE.c.id.label("follows"),
        turns.c.system_prompt_override,
        and_(func.coalesce(turns.c.parallel, true()), func.coalesce(agents.c.parallel, true())).label("parallel"),
    )
    .outerjoin(agents, agents.c.name == turns.c.agent)
    .outerjoin(
        _BEFORE,
        and_(
            _BEFORE.c.tenant == turns.c.tenant,
            _BEFORE.c.session_id == turns.c.session_id,
            _BEFORE.c.number == turns.c.number - 1,
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a turn was asked for.

    Args:
        follows: The turn before it in its session.
        system: The text that replaces its agent's system text.
        parallel: Whether its calls may run at once.
    """

    follows: str | None = None
    system: str | None = None
    parallel: bool = True


class Turns:
    """One tenant's turns. Every method is one transaction; absent things are ``None``.

    Args:
        engine: The database.
        tenant: Whose turns.
        scans: The places for queries that may have to read all of the tenant's turns.
    """

    def __init__(self, engine: AsyncEngine, tenant: str, scans: TenantPlaces) -> None:
        self._engine = engine
        self._scans = scans
        self._writer = writer_of(engine)
        self._tenant = tenant

    async def head(self, turn_id: str) -> Head | None:
        """How far the turn has come."""
        return (await heads_where(self._engine, self._is(turn_id))).get(turn_id)

    async def one(self, turn_id: str) -> Turn | None:
        """The turn with its calls, by step and position."""
        async with self._engine.connect() as connection:
            return await self._turn(connection, turn_id)

    async def one_with(self, turn_id: str, parts: frozenset[str]) -> TurnWithParts | None:
        """The turn with its calls and with ``parts``, of ``messages`` and ``scores``."""
        async with self._engine.connect() as connection:
            turn = await self._turn(connection, turn_id)
            if turn is None:
                return None
            names = (*parts, "context") if "messages" in parts else parts
            added = {name: await _PARTS[name](connection, turn_id) for name in names}
        return TurnWithParts.model_validate({**dict(turn), **added})

    async def terms(self, turn_id: str) -> Terms | None:
        """How the turn was asked for."""
        async with self._engine.connect() as connection:
            row = (await connection.execute(_TERMS.where(self._is(turn_id)))).one_or_none()
        if row is None:
            return None
        return Terms(follows=row.follows, system=row.system_prompt_override, parallel=row.parallel)

    async def scores(self, turn_id: str) -> ScoreList | None:
        """The scores of the turn's judges."""
        async with self._engine.connect() as connection:
            is_there = (await connection.execute(select(turns.c.id).where(self._is(turn_id)))).one_or_none()
            return None if is_there is None else ScoreList(data=await _scores(connection, turn_id))

    async def page(self, query: TurnsQuery) -> TurnPage:
        """One page, newest first; it has fewer turns than asked for if they are long.

        Raises:
            Problem: 503 ``not_ready``: others that read all turns of the tenant take too long.
        """
        rows = select(*TURN_COLUMNS).where(turns.c.tenant == self._tenant, *narrowed(query, self._engine.dialect.name))
        page = newest_first(rows, turns, query, is_selective=is_selective(query))
        place = self._scans.held(self._tenant) if may_scan(query) else nullcontext()
        async with place, self._engine.connect() as connection:
            found = (await connection.execute(within_bytes(page, turns, TEXT_BYTES + WAITING_BYTES, AS_LISTED))).all()
            shown = await within_bytes_below(connection, found[: query.limit])
            asked = await pending_approvals(
                connection, [row.id for row in shown if row.status == TurnStatus.REQUIRES_ACTION]
            )
            below = await approvals_below(connection, shown)
        data = [summary_of(row, asked[row.id], below[row.id]) for row in shown]
        return TurnPage(data=data, next=next_of(shown, found[0].found if found else 0))

    async def events(self, turn_id: str, query: EventsQuery) -> EventPage:
        """One page of a turn's events, in order; it has fewer than asked for if they are long.

        It is empty if there is no such turn.
        """
        asked = {"of_turn": turn_id, "of_tenant": self._tenant, "after": query.after, "most": query.limit + 1}
        async with self._engine.connect() as connection:
            rows = (await connection.execute(_EVENTS, asked)).all()
        shown = [event_of(row) for row in rows[: query.limit]]
        return EventPage(data=shown, next=shown[-1].seq if rows and rows[0].found > len(shown) else None)

    async def request_cancel(self, turn_id: str) -> tuple[Turn, str] | None:
        """Ask the turn to stop; returns it and its priority, or ``None`` if it does not exist or has ended."""
        change = (
            update(turns)
            .where(self._is(turn_id), turns.c.status.not_in(FINAL_STATUSES))
            .values(cancel_requested=true(), wakes=turns.c.wakes + 1, wake_at=db_now())
            .returning(*TURN_COLUMNS, turns.c.priority)
        )
        async with self._writer.begin() as connection:
            row = (await connection.execute(change)).one_or_none()
            return None if row is None else (await with_calls(connection, row), row.priority)

    def _is(self, turn_id: str) -> ColumnElement[bool]:
        return and_(turns.c.id == turn_id, turns.c.tenant == self._tenant)

    async def _turn(self, connection: AsyncConnection, turn_id: str) -> Turn | None:
        # The turn first: what is read after it is at least as new, so a finished turn never lacks a call.
        row = (await connection.execute(select(*TURN_COLUMNS).where(self._is(turn_id)))).one_or_none()
        return None if row is None else await with_calls(connection, row)


async def with_calls(connection: AsyncConnection, row: Row[Any]) -> Turn:
    """A row of ``TURN_COLUMNS`` with its calls, by step and position, and what turns below it wait for.

    A fork is shown without the calls that it got from its origin.
    """
    calls = await calls_by_turn(connection, [row.id], tool_calls.c.step >= row.first_step)
    below = await approvals_below(connection, [row])
    return turn_of(row, calls[row.id], below[row.id])


async def _messages(connection: AsyncConnection, turn_id: str) -> list[Message]:
    query = select(messages).where(messages.c.turn_id == turn_id).order_by(messages.c.position)
    return [message_of(row) for row in await connection.execute(query)]


async def _scores(connection: AsyncConnection, turn_id: str) -> list[Score]:
    query = select(scores).where(scores.c.turn_id == turn_id, scores.c.judge != MEMORY).order_by(scores.c.judge)
    return [score_of(row) for row in await connection.execute(query)]


async def _context(connection: AsyncConnection, turn_id: str) -> list[str]:
    """What the model was sent before the user's message; nothing if the turn has just been removed."""
    found = await connection.execute(select(turns.c.preparation).where(turns.c.id == turn_id))
    prepared: dict[str, Any] | None = found.scalar_one_or_none()
    return [] if prepared is None else prepared["context"]


_PARTS: Final[Mapping[str, Callable[[AsyncConnection, str], Awaitable[object]]]] = {
    "context": _context,
    "messages": _messages,
    "scores": _scores,
}
