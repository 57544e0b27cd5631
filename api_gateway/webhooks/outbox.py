"""The rows of ``webhooks``: which deliveries are due, which gateway attempts one, and how the attempt ended.

A gateway claims a row by a lease, and records its attempt only if no other has claimed the row since: ``seq`` and
``attempt`` identify the attempt, as a fence does that of a turn. An attempt that died with its gateway is no failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import and_, bindparam, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from api_gateway.database import AnyRow, AnySelect, writer_of
from api_gateway.streams.live import RESTING_EVENTS
from api_gateway.turns.answers import TurnSummary
from api_gateway.turns.calls import approvals_below, pending_approvals
from api_gateway.turns.rows import TURN_COLUMNS, summary_of
from api_gateway.webhooks.rules import DeliveryOutcome, DueDelivery, Full, Lane, ReceiverAnswer, Verdict
from harness_worker.schema import db_now, turn_events, turns, webhooks
from harness_worker.wire import TERMINAL_EVENTS, rfc3339

LEASE_S: Final = 25.0
"""How long a claim lasts; longer than an attempt, so that no other gateway delivers the event while this one lives."""

_C: Final = webhooks.c
_NEWEST: Final = (
    select(func.max(turn_events.c.seq))
    .where(
        turn_events.c.turn_id == _C.turn_id,
        turn_events.c.seq > _C.told_seq,
        turn_events.c.type.in_(sorted(RESTING_EVENTS)),
    )
    .correlate(webhooks)
    .scalar_subquery()
)
# In a subquery, the clock is read only once.
_NOW: Final = select(db_now()).scalar_subquery()
_ABOVE: Final = case((_C.due_at <= _NOW, _C.told_seq), else_=_C.seq)
"""The number above which an event is due: an event whose attempt failed waits for its retry, a newer one does not."""

_IS_DUE: Final = and_(
    _C.due_at.is_not(None),
    or_(_C.lease_until.is_(None), _C.lease_until <= _NOW),
    _NEWEST > _ABOVE,
)
"""A row under a lease is left to the gateway that holds it."""

_DUE: Final = select(_C.turn_id, _C.host, turns.c.tenant).join(turns).where(_IS_DUE).order_by(_C.due_at)

_CLAIM: Final = (
    update(webhooks)
    .where(_C.turn_id == bindparam("this_turn"))
    .values(
        seq=bindparam("now_seq"),
        attempt=bindparam("now_attempt"),
        failures=bindparam("now_failures"),
        lease_until=db_now() + LEASE_S,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One attempt to deliver an event, which belongs to this process for as long as the lease lasts.

    Args:
        turn_id: The turn.
        url: The endpoint.
        lane: The tenant, and the URL's host.
        seq: The event's number in its turn.
        attempt: The number of the attempt to deliver this event, from 1.
        failures: How many of those before failed.
    """

    turn_id: str
    url: str
    lane: Lane
    seq: int
    attempt: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """An event to deliver.

    Args:
        kind: The event's type.
        at: When it happened, RFC 3339 UTC.
        turn: The turn as it is now.
        now: The database's clock, in seconds since the epoch.
    """

    kind: str
    at: str
    turn: TurnSummary
    now: float

    @property
    def is_last(self) -> bool:
        """Whether no event follows, because the turn has ended."""
        return self.kind in TERMINAL_EVENTS


class Outbox:
    """The webhooks of every tenant. Every method is one transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._writer = writer_of(engine)

    async def due(self, limit: int, full: Full) -> list[DueDelivery]:
        """Deliveries that are due, the longest due first, without those of hosts and tenants that are full."""
        has_room = (_C.host.not_in(full.hosts), turns.c.tenant.not_in(full.tenants))
        return await self._due(_DUE.where(*has_room).limit(limit))

    async def due_of(self, turn_ids: Sequence[str]) -> list[DueDelivery]:
        """Deliveries of these turns that are due, the longest due first; not locked, as there may be no free place."""
        return await self._due(_DUE.where(_C.turn_id.in_(turn_ids)))

    async def _due(self, query: AnySelect) -> list[DueDelivery]:
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [DueDelivery(turn_id=row.turn_id, lane=_lane(row)) for row in rows]

    async def claim(self, turn_ids: Sequence[str]) -> list[Claim]:
        """Claim the deliveries of these turns that are still due and that no other gateway claims."""
        columns = (_C.turn_id, _C.url, _C.host, _C.seq, _C.attempt, _C.failures, _NEWEST.label("newest"))
        found = select(*columns, turns.c.tenant).join(turns).where(_C.turn_id.in_(turn_ids), _IS_DUE)
        query = found.with_for_update(of=webhooks, skip_locked=True)  # the turns' own rows are their workers'
        async with self._writer.begin() as connection:
            claims = [_claim(row) for row in (await connection.execute(query)).all()]
            if claims:
                await connection.execute(_CLAIM, [_columns(claim) for claim in claims])
        return claims

    async def event(self, claim: Claim) -> WebhookEvent | None:
        """The event to deliver; ``None`` if the turn was removed."""
        query = (
            select(*TURN_COLUMNS, turn_events.c.type.label("kind"), turn_events.c.at, db_now().label("now"))
            .join(turn_events, turn_events.c.turn_id == turns.c.id)
            .where(turns.c.id == claim.turn_id, turn_events.c.seq == claim.seq)
        )
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).one_or_none()
            return None if row is None else await _event(connection, row)

    async def record(self, claim: Claim, event: WebhookEvent, answer: ReceiverAnswer, verdict: Verdict) -> bool:
        """Record how the attempt ended; ``False``, and nothing is written, if the claim no longer holds."""
        still_held = (
            _C.turn_id == claim.turn_id,
            _C.seq == claim.seq,
            _C.attempt == claim.attempt,
            _C.lease_until.is_not(None),
        )
        change = update(webhooks).where(*still_held).values(_after(claim, event, verdict))
        result = {
            "status_code": answer.status_code,
            "error": answer.error,
            "failures": claim.failures + (answer.error is not None),
            "at": db_now(),
            "lease_until": None,
        }
        async with self._writer.begin() as connection:
            return (await connection.execute(change.values(result))).rowcount == 1


def _lane(row: AnyRow) -> Lane:
    return Lane(tenant=row.tenant, host=row.host)


def _claim(row: AnyRow) -> Claim:
    attempt, failures = (row.attempt + 1, row.failures) if row.newest == row.seq else (1, 0)
    return Claim(turn_id=row.turn_id, url=row.url, lane=_lane(row), seq=row.newest, attempt=attempt, failures=failures)


def _columns(claim: Claim) -> dict[str, Any]:
    return {
        "this_turn": claim.turn_id,
        "now_seq": claim.seq,
        "now_attempt": claim.attempt,
        "now_failures": claim.failures,
    }


async def _event(connection: AsyncConnection, row: AnyRow) -> WebhookEvent:
    asked = await pending_approvals(connection, [row.id])
    below = await approvals_below(connection, [row])
    turn = summary_of(row, asked[row.id], below[row.id])
    return WebhookEvent(kind=row.kind, at=rfc3339(row.at) or "", turn=turn, now=row.now)


def _after(claim: Claim, event: WebhookEvent, verdict: Verdict) -> dict[str, Any]:
    """The columns that say what is due next, and when."""
    if verdict.outcome is DeliveryOutcome.FAILED:
        return {"due_at": db_now() + verdict.retry_in_s}
    is_over = event.is_last or verdict.is_gone
    return {"told_seq": claim.seq, "due_at": None if is_over else db_now()}
